"""Faults planted in the text of compiled programs: each is found by its name, and the programs as compiled have none.

The programs are the mixed sample `gram` (cube, two vector cores, workspace in four slots) and the K K^T kernel of the
two-call chain, whose vector half has many dependent ops.
"""
from __future__ import annotations

import re

import numpy as np
import pytest

from npusim.errors import NpusimError
from npusim.execute import run
from npusim.isolate import call
from npusim.parse import parse_module
from ut.npusim import ir, kernels, programs

ORDER = re.compile(r"^\s+hivm\.hir\.(set_flag|wait_flag|sync_block_set|sync_block_wait)\[")


@pytest.fixture(scope="module")
def gram() -> str:
    return call(kernels.compiled, "gram")["hivm"]


@pytest.fixture(scope="module")
def kkt() -> dict:
    return call(programs.launch_of, "unfused", "1,256,2,2,128", "kkt")


def findings(text: str, rows: int = 512, blocks: int = 1, args=None):
    """Findings of the gram program on seeded data; one block does several rounds, so buffers are used again."""
    rng = np.random.default_rng(3)
    args = args or [ir.bf16(rng.standard_normal((rows, 128))).reshape(-1),
                    rng.standard_normal(rows).astype(np.float32), np.zeros(rows * 64, np.float32), rows]
    return run(parse_module(text), blocks, args).findings


def kinds(found) -> set[str]:
    return {finding.kind for finding in found}


def kkt_findings(kkt: dict, text: str):
    return run(parse_module(text), kkt["grid"], [a.copy() if isinstance(a, np.ndarray) else a for a in kkt["args"]],
               blocks=[0, 1]).findings


def test_programs_as_compiled_have_no_finding(gram, kkt):
    assert findings(gram, blocks=2) == [] and kkt_findings(kkt, kkt["hivm"]) == []


@pytest.mark.parametrize("pipes", ["<PIPE_MTE2>, <PIPE_V>", "<PIPE_V>, <PIPE_MTE3>", "<PIPE_MTE3>, <PIPE_MTE2>",
                                   "<PIPE_M>, <PIPE_FIX>", "<PIPE_FIX>, <PIPE_M>", "<PIPE_MTE1>, <PIPE_MTE2>"])
def test_a_removed_wait_flag_is_a_race_and_an_event_left_set(gram, pipes):
    found = findings(ir.without(gram, f"wait_flag[{pipes}"), rows=1024)
    assert {"race", "event_left_set"} <= kinds(found)
    races = [f.message for f in found if f.kind == "race"]
    assert any("nothing orders them" in message and "line" in message for message in races)


def test_a_removed_pipe_barrier_is_a_race_between_the_two_vector_ops(kkt):
    lines = [i for i, line in enumerate(kkt["hivm"].split("\n")) if "pipe_barrier[<PIPE_V>]" in line]
    assert len(lines) >= 10
    unnoticed = []
    for nth in range(len(lines)):
        found = kkt_findings(kkt, ir.without(kkt["hivm"], "pipe_barrier[<PIPE_V>]", nth))
        if kinds(found) != {"race"}:
            unnoticed.append(nth)
        else:
            assert all("on V" in f.message or " V:" in f.message for f in found)
    assert unnoticed == [], "each barrier that the compiler set orders something"


def test_an_overlapped_offset_in_ub_is_a_race(gram):
    """The tile of gates moved onto the tile of products, which is loaded and multiplied at the same time."""
    place = re.search(r"pointer_cast\(%(c\d+)_i64\) : memref<32x1xf32", gram)[1]
    moved = gram.replace(f"pointer_cast(%{place}_i64) : memref<32x1xf32", "pointer_cast(%c0_i64) : memref<32x1xf32")
    assert moved != gram and "race" in kinds(findings(moved))


def test_a_removed_sync_block_wait_is_a_race_on_the_workspace(gram):
    found = findings(ir.without(gram, "sync_block_wait[<VECTOR>"))
    assert {"race", "event_left_set"} <= kinds(found)
    assert any("workspace" in f.message for f in found if f.kind == "race")
    assert any("cross-core flag" in f.message for f in found if f.kind == "event_left_set")
    found = findings(ir.without(gram, "sync_block_wait[<CUBE>"), rows=1024)
    assert any("workspace" in f.message for f in found if f.kind == "race")


def test_a_shortened_workspace_is_out_of_bounds(gram):
    size = parse_module(gram).workspace_bytes
    shorter = re.sub(rf"(arith.constant) {size} : index", rf"\1 {size - 4096} : index", gram)
    found = findings(shorter)
    assert shorter != gram and "out_of_bounds" in kinds(found)
    assert any("workspace" in f.message for f in found)


def test_a_shortened_tile_is_out_of_bounds(gram):
    """The keys' tile in L1 allocated for half the channels that are loaded into it."""
    shorter = gram.replace(": memref<8x4x16x16xbf16, #hivm.address_space<cbuf>>\n",
                           ": memref<4x4x16x16xbf16, #hivm.address_space<cbuf>>\n")
    found = findings(shorter)
    assert shorter != gram and any(f.kind == "out_of_bounds" and "cbuf of cube" in f.message for f in found)


def test_tiles_that_do_not_go_together_are_one_line(gram):
    odd = re.sub(r"(pointer_cast\(%c0_i64\) : memref<)32x64xf32(, #hivm.address_space<ub>>)", r"\g<1>16x64xf32\2",
                 gram, count=1)
    with pytest.raises(NpusimError, match=r"line \d+: vmul on .*\(16, 64\), \(32, 1\)"):
        findings(odd)


@pytest.mark.parametrize("index, cut", [(0, 128), (1, 1), (2, 64)], ids=["k", "gate", "out"])
def test_a_buffer_that_is_too_short_is_out_of_bounds(gram, index, cut):
    rng = np.random.default_rng(3)
    args = [ir.bf16(rng.standard_normal((512, 128))).reshape(-1), rng.standard_normal(512).astype(np.float32),
            np.zeros(512 * 64, np.float32), 512]
    args[index] = args[index][:-cut].copy()
    found = findings(gram, args=args)
    assert kinds(found) == {"out_of_bounds"} and all(f"argument {index}" in f.message for f in found)


@pytest.mark.parametrize("line", ["set_flag[<PIPE_MTE2>, <PIPE_V>", "set_flag[<PIPE_M>, <PIPE_FIX>",
                                  "sync_block_set[<CUBE>", "sync_block_set[<VECTOR>"])
def test_a_removed_set_is_a_deadlock_that_names_the_waiting_pipe(gram, line):
    found = findings(ir.without(gram, line), rows=1024)
    assert "deadlock" in kinds(found)
    assert any("waits for" in f.message for f in found if f.kind == "deadlock")


def test_a_removed_load_is_a_read_of_memory_nothing_wrote(gram):
    found = findings(ir.without(gram, "hivm.hir.load ins("))
    assert "poison_read" in kinds(found) and any("argument 2" in f.message for f in found)
    found = findings(ir.without(gram, "hivm.hir.nd2nz"))
    assert "poison_read" in kinds(found)


def test_outputs_can_be_declared_unwritten(gram):
    """Reading a fresh output buffer, here the gate, is found once it is said to hold nothing."""
    rng = np.random.default_rng(3)
    args = [ir.bf16(rng.standard_normal((64, 128))).reshape(-1), np.zeros(64, np.float32),
            np.zeros(64 * 64, np.float32), 64]
    assert kinds(run(parse_module(gram), 1, args, unwritten=(1, 2)).findings) == {"poison_read"}
    assert run(parse_module(gram), 1, args, unwritten=(1, 2), scratch=(1, 2)).findings == []  # nobody looks at it


def test_every_removed_line_of_order_is_found(gram):
    lines = gram.split("\n")
    silent = []
    for number, line in enumerate(lines):
        if ORDER.match(line) and not findings("\n".join(lines[:number] + lines[number + 1:]), rows=384):
            silent.append((number + 1, line.strip()))
    assert silent == []


def test_two_blocks_that_write_the_same_rows_are_a_race(gram):
    """Both blocks take block 0's rows: their stores meet, and nothing orders blocks."""
    same = re.sub(r"(%\w+) = hivm\.hir\.get_block_idx -> i64", r"\1 = arith.constant 0 : i64", gram)
    found = findings(same, blocks=2)
    assert any(f.kind == "race" and "in block 0" in f.message and f.block == 1 for f in found)


def test_two_vector_cores_that_store_the_same_values_are_no_race(gram):
    """Without the guard on the sub-block both vector cores repeat the store: wasteful, but every order is the same."""
    unguarded = gram.replace("arith.cmpi eq, %14, %c0 : index", "arith.cmpi eq, %c0, %c0 : index")
    assert unguarded != gram and findings(unguarded) == []
