"""npusim.time: how estimates depend on the program and the machine, what they report, and where numbers come from."""
from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from npusim import machine, time
from npusim.errors import NpusimError, UnsupportedError
from npusim.isolate import call
from npusim.parse import parse_module
from npusim.time import estimate
from npusim.views import Meta
from ut.npusim import ir, kernels

CHIP = machine.machine("Ascend910B2")
US = 1 / (CHIP.clock_ghz.value * 1e3)  # a cycle
ROWS = 24 * 4 * 64


@pytest.fixture(scope="module")
def gram():
    return parse_module(call(kernels.compiled, "gram")["hivm"])


def gram_arguments(rows: int = ROWS) -> list:
    return [Meta(rows * 128), Meta(rows), Meta(rows * 64), rows]


def body_us(text: str, args: list, grid: int = 1) -> float:
    return estimate(parse_module(text), grid, args).block_us


def loads(count: int, between: tuple[str, ...] = ()) -> str:
    """`count` loads of 256 bytes into tiles of their own, then a barrier."""
    body = []
    for i in range(count):
        body += [f"%c{i}_i64 = arith.constant {256 * i} : i64",
                 f"%t{i} = hivm.hir.pointer_cast(%c{i}_i64) : {ir.tile('64xf32')}",
                 f"%g{i} = memref.reinterpret_cast %a0 to offset: [{64 * i}], sizes: [64], strides: [1] : "
                 f"{ir.buffer('f32')} to memref<64xf32, strided<[1], offset: {64 * i}>, {ir.GM}>",
                 f"hivm.hir.load ins(%g{i} : memref<64xf32, strided<[1], offset: {64 * i}>, {ir.GM}>) "
                 f"outs(%t{i} : {ir.tile('64xf32')}) init_out_buffer = false", *between]
    return ir.program([ir.buffer("f32")], [*body, "hivm.hir.pipe_barrier[<PIPE_ALL>]"])


def adds(count: int, barriers: bool, apart: int = 16384) -> str:
    """`count` additions of 64x64 tiles that lie `apart` bytes from each other."""
    body = [f"%c{i}_i64 = arith.constant {apart * i} : i64" for i in range(3)]
    body += [f"%t{i} = hivm.hir.pointer_cast(%c{i}_i64) : {ir.tile('4096xf32')}" for i in range(3)]
    for _ in range(count):
        body.append(f"hivm.hir.vadd ins(%t0, %t1 : {ir.tile('4096xf32')}, {ir.tile('4096xf32')}) "
                    f"outs(%t2 : {ir.tile('4096xf32')})")
        body += ["hivm.hir.pipe_barrier[<PIPE_V>]"] * barriers
    return ir.program([], [*body, "hivm.hir.pipe_barrier[<PIPE_ALL>]"])


def test_loads_in_flight_share_their_latency():
    one, eight = body_us(loads(1), [Meta(512)]), body_us(loads(8), [Meta(512)])
    latency = CHIP.gm_read_latency.value * US
    assert one > latency and eight < one + 0.8 * latency
    waiting = body_us(loads(8, ("hivm.hir.pipe_barrier[<PIPE_ALL>]",)), [Meta(512)])
    assert waiting > 8 * latency


def test_a_barrier_pays_the_latency_of_a_vector_op():
    free, dependent = body_us(adds(64, False), []), body_us(adds(64, True), [])
    assert dependent - free > 63 * 0.9 * CHIP.vector_latency.value * US


def test_operands_in_the_same_bank_groups_take_twice_as_long():
    conflicting, apart = body_us(adds(64, False, 16384), []), body_us(adds(64, False, 16384 + 256), [])
    assert conflicting == pytest.approx(2 * apart, rel=0.1)


def test_rows_narrower_than_a_repeat_waste_it():
    def half(width: int) -> float:
        cut = f"memref<128x{width}xf32, strided<[64, 1]>, {ir.UB}>"
        body = ["%c0_i64 = arith.constant 0 : i64",
                f"%t = hivm.hir.pointer_cast(%c0_i64) : {ir.tile('128x64xf32')}",
                f"%s = memref.subview %t[0, 0] [128, {width}] [1, 1] : {ir.tile('128x64xf32')} to {cut}"]
        body += [f"hivm.hir.vexp ins(%s : {cut}) outs(%s : {cut})"] * 32
        return body_us(ir.program([], body), [])

    assert half(16) == pytest.approx(half(63), rel=0.02)


def test_cube_and_vector_programs_together(gram):
    timing = estimate(gram, 24, gram_arguments())
    assert {"cube.M", "cube.FIX", "vector0.V", "vector1.V"} <= set(timing.pipes)
    assert all(0 < share <= 1 for share in timing.pipes.values())
    assert timing.us == pytest.approx(timing.block_us + CHIP.kernel_start_us.value + CHIP.block_start_us.value)
    assert timing.kind == "estimated" and timing.critical and timing.waits
    assert json.loads(json.dumps(timing.as_dict()))["us"] == timing.us


def test_bytes_through_global_memory_are_counted_exactly(gram):
    bytes_ = estimate(gram, 24, gram_arguments()).gm_bytes
    assert bytes_["written"] == ROWS * 64 * 4
    assert bytes_["workspace"] == pytest.approx(3 * ROWS * 64 * 4)  # written once, read by both vector cores
    assert bytes_["read"] == ROWS * 128 * 2 + 2 * ROWS * 4


def test_hand_offs_and_instructions_per_task(gram):
    per = estimate(gram, 24, gram_arguments()).per_iteration
    tasks = 4  # of each of the 24 programs, in one round of the outer loop
    assert per["iterations"] == 1 and per["cube"] == tasks and per["fixpipes"] == tasks
    assert per["handoffs"] == 2 * tasks + 4  # there and back, and four workspace slots handed over at the start


def test_more_rows_take_longer_and_as_many_more_as_there_is_work(gram):
    small, large = (estimate(gram, 24, gram_arguments(n * ROWS)) for n in (4, 8))
    assert large.block_us == pytest.approx(2 * small.block_us, rel=0.15)


def test_a_grid_beyond_the_cores_runs_in_waves(gram):
    one, many = estimate(gram, 24, gram_arguments(64)), estimate(gram, 240, gram_arguments(64))
    assert (one.waves, many.waves) == (1, 10) and many.us > one.us + 9 * CHIP.block_start_us.value


def test_fewer_cores_need_more_waves(gram):
    assert estimate(gram, 24, gram_arguments(), "Ascend910B4").waves == 2
    assert estimate(gram, 24, gram_arguments(), "Ascend910_9382").waves == 1


def test_bandwidth_is_a_floor(gram, monkeypatch):
    slow = replace(CHIP, hbm_tbytes=replace(CHIP.hbm_tbytes, value=0.001))
    monkeypatch.setitem(machine.TABLE, "Ascend910B2", slow)
    timing = estimate(gram, 24, gram_arguments())
    assert timing.critical == "HBM bandwidth" and timing.us > timing.floor_us["hbm"] > timing.block_us


def test_the_same_launch_gives_the_same_estimate(gram):
    assert estimate(gram, 24, gram_arguments()) == estimate(gram, 24, gram_arguments())


def steered() -> str:
    """A loop whose bound is read from the first buffer."""
    return ir.program([ir.buffer("i32"), ir.buffer("f32")], [
        "%c0 = arith.constant 0 : index", "%c0_i32 = arith.constant 0 : i32", "%c1_i32 = arith.constant 1 : i32",
        f"%n = memref.load %a0[%c0] : {ir.buffer('i32')}",
        "scf.for %i = %c0_i32 to %n step %c1_i32  : i32 {", "hivm.hir.pipe_barrier[<PIPE_V>]", "}"])


def test_control_flow_on_unknown_data_is_an_error_that_says_what_to_give():
    module = parse_module(steered())
    with pytest.raises(NpusimError, match=r"line 6 from argument 0: give that buffer's data"):
        estimate(module, 1, [Meta(4), Meta(4)])
    few, many = (estimate(module, 1, [np.array([n], np.int32), Meta(4)]) for n in (1, 1000))
    assert many.per_iteration["iterations"] == 1000 and many.block_us > few.block_us


def test_what_would_hang_is_an_error_that_points_to_execute(gram):
    text = ir.without(gram.text, "sync_block_set[<CUBE>")
    with pytest.raises(NpusimError, match="never ends.*npusim.execute"):
        estimate(parse_module(text), 1, gram_arguments())
    with pytest.raises(NpusimError, match="nothing has set.*npusim.execute"):
        estimate(parse_module(ir.without(gram.text, "set_flag[<PIPE_M>, <PIPE_FIX>")), 1, gram_arguments())


def test_unknown_targets_and_ops_without_a_cost_are_named(gram):
    with pytest.raises(UnsupportedError, match="Ascend310P.*Ascend910B2"):
        estimate(gram, 1, gram_arguments(), "Ascend310P")
    text = ir.one_op("hivm.hir.vmystery ins(%t0 : {ins}) outs(%o : {out})", ["8x64xf32"], "8x64xf32")
    with pytest.raises(UnsupportedError, match="hivm.hir.vmystery"):
        estimate(parse_module(text), 1, [Meta(512), Meta(512)])


@pytest.mark.parametrize("grid", [0, (65536,), (256, 256)], ids=str)
def test_a_grid_that_no_launch_takes_is_refused(gram, grid):
    with pytest.raises(NpusimError, match="a launch takes 1 to 65535"):
        estimate(gram, grid, gram_arguments())


def test_the_trace_opens_in_a_trace_viewer_and_pipes_never_do_two_things(gram):
    timing = estimate(gram, 24, gram_arguments(), trace=True)
    assert {e["pid"] for e in timing.trace} == {"cube", "vector0", "vector1"}
    assert all(e["ph"] == "X" and e["dur"] > 0 and e["args"]["line"] > 0 for e in timing.trace)
    for core, pipe in {(e["pid"], e["tid"]) for e in timing.trace}:
        events = sorted((e for e in timing.trace if (e["pid"], e["tid"]) == (core, pipe)), key=lambda e: e["ts"])
        ends = [e["ts"] + e["args"]["cycles"] * US for e in events]
        assert all(after["ts"] >= end - 1e-9 for end, after in zip(ends, events[1:], strict=False))


def test_every_number_of_a_machine_has_a_unit_and_a_source():
    for name, value, unit, source in machine.sources():
        assert unit and len(source) > 8, name
        if source.startswith("fitted"):
            assert value == float(f"{value:.1g}"), f"{name} is fitted to more digits than two points allow"
    fitted = [name for name, _, _, source in machine.sources() if source.startswith("fitted")]
    assert len(fitted) == 2, "two published points fit at most two numbers"
    assert all(isinstance(getattr(CHIP, f.name), machine.Number) for f in fields(CHIP))


def test_the_command_prints_json_and_writes_a_trace(gram, tmp_path, capsys):
    path, trace = tmp_path / "gram.hivm.mlir", tmp_path / "trace.json"
    path.write_text(gram.text)
    arguments = [str(path), "--grid", "24", "--arg", f"meta:{ROWS * 128}", "--arg", f"meta:{ROWS}", "--arg",
                 f"meta:{ROWS * 64}", "--arg", str(ROWS), "--trace", str(trace)]
    assert time.main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["us"] == estimate(gram, 24, gram_arguments()).us
    assert json.loads(trace.read_text())["traceEvents"]
    assert time.main([*arguments[:3]]) == 1
    assert "takes 4 run-time arguments, got 0" in capsys.readouterr().err


def test_a_kernel_that_only_moves_memory():
    assert time.memory_kernel_us(0, 1.49e6) == pytest.approx(
        1 + CHIP.kernel_start_us.value + CHIP.block_start_us.value)
