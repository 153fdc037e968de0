"""Published failures of tails, short chunks, padding and unwritten memory (ids T.. of cases.md).

Everything here runs with torch's deterministic fill: what no kernel writes is NaN.
"""
from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin import reference
from mindspeed_kkt_plugin.kernels import portable
from mindspeed_kkt_plugin.varlen import prepare_chunk_indices
from ut.accuracy import assert_accurate, chunk_errors, exact
from ut.hostile.memory import Guarded, poisoned
from ut.inputs import Inputs, make_inputs

pytest.importorskip("triton", reason="the two-call chain needs Triton (pip install triton-ascend==3.2.0)")
from mindspeed_kkt_plugin import unfused  # noqa: E402

pytestmark = pytest.mark.usefixtures("unwritten_is_nan")


def hold(inputs: Inputs) -> torch.Tensor:
    out = fused(*inputs.args)
    assert_accurate(out, exact(inputs), inputs)
    return out


def in_poison(inputs: Inputs, at_end: bool = False) -> torch.Tensor:
    return fused(*(poisoned(x, at_end) for x in inputs.args[:3]), *inputs.args[3:])


@pytest.mark.parametrize("T", [64 + tail for tail in (1, 2, 31, 32, 33, 63, 64, 68)])
def test_T01_tails_of_64_chunks(T, device):
    hold(make_inputs("cosine_95", T=T, H=1, K=16, device=device))


@pytest.mark.parametrize("T", range(16, 33))
def test_T01_every_residue_of_a_16_chunk(T, device):
    hold(make_inputs("cosine_50", B=2, T=T, H=1, K=16, chunk_size=16, device=device))


@pytest.mark.parametrize("path", ["first", "two_call"])
@pytest.mark.parametrize("last", [1, 5, 17, 33])
def test_T03_last_sequence_at_the_end_of_its_allocation(last, path, device, monkeypatch):
    if path != "first":
        monkeypatch.setenv("MINDSPEED_KKT_PATH", path)
    inputs = make_inputs("cosine_95", T=20 + last, H=1, K=16, chunk_size=32, cu_seqlens=[0, 20, 20 + last],
                         device=device)
    assert torch.equal(in_poison(inputs, at_end=True), hold(inputs))


@pytest.mark.parametrize("last", [1, 5, 17, 33])
def test_T03_solve_alone_reads_nothing_past_its_matrix(last, device):
    inputs = make_inputs("cosine_95", T=20 + last, H=1, K=16, chunk_size=32, cu_seqlens=[0, 20, 20 + last],
                         device=device)
    low = reference.kkt(*inputs.args, dtype=torch.float32)
    assert_accurate(unfused.solve_tril(poisoned(low, at_end=True), inputs.cu_seqlens), exact(inputs), inputs)


@pytest.mark.parametrize("T", [1, 15, 63, 65, 127])
def test_T04_nan_around_every_token_is_never_read(T, device):
    inputs = make_inputs("cosine_95", T=T, H=1, HV=2, K=16, device=device)
    assert torch.equal(in_poison(inputs), hold(inputs))


@pytest.mark.parametrize("garbage", [float("nan"), 1e4], ids=str)
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
def test_T06_solve_ignores_the_diagonal_and_above(chunk_size, garbage, device):
    inputs = make_inputs("cosine_95", T=70, H=1, K=16, chunk_size=chunk_size, device=device)
    low = reference.kkt(*inputs.args, dtype=torch.float32)
    column, row = torch.arange(chunk_size, device=device), torch.arange(70, device=device)[:, None] % chunk_size
    dirty = torch.where((column >= row)[None, :, None], garbage, low)
    out = unfused.solve_tril(dirty)
    assert_accurate(out, exact(inputs), inputs)


FIRST_CALLS = """
import hashlib, sys, torch
torch.use_deterministic_algorithms(True)
from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from ut.inputs import make_inputs
T, H = (40, 1) if sys.argv[1] == "cpu" else (2048, 16)
inputs = make_inputs("cosine_95", T=T, H=H, K=64, device=sys.argv[1], dtype=torch.bfloat16)
outs = [fused(*inputs.args).cpu() for _ in range(4)]
assert all(torch.equal(out, outs[0]) for out in outs) and outs[0].isfinite().all()
print(hashlib.sha256(outs[0].view(torch.uint8).numpy().tobytes()).hexdigest())
"""


def test_T07_R04_R06_first_call_of_each_process_gives_the_same_bits(device):
    """No state of an earlier process (tuning caches included) and no warm-up may show."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TRITON_INTERPRET": "01"[device == "cpu"]}
    hashes = set()
    for _ in range(2 if device == "cpu" else 6):
        run = subprocess.run([sys.executable, "-c", FIRST_CALLS, device], env=environment, capture_output=True,
                             text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        hashes.add(run.stdout)
    assert len(hashes) == 1


def test_T09_deterministic_fill_changes_nothing_eager_or_compiled(device):
    inputs = make_inputs("cosine_95", T=21, H=1, K=16, chunk_size=16, cu_seqlens=[0, 3, 3, 18], device=device)
    filled = hold(inputs)
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)(*inputs.args)
    torch.use_deterministic_algorithms(False)
    assert torch.equal(filled, fused(*inputs.args)) and torch.equal(filled, compiled)


def _table(inputs: Inputs):
    return None if inputs.cu_seqlens is None else prepare_chunk_indices(inputs.cu_seqlens, inputs.chunk_size)


@pytest.mark.parametrize("module", [portable, unfused], ids=["portable", "two_call"])
@pytest.mark.parametrize("head_first", [False, True], ids=["token_first", "head_first"])
@pytest.mark.parametrize("T,chunk_size,offsets", [(33, 32, None), (65, 64, None), (70, 16, None),
                                                  (40, 16, [0, 7, 7, 30]), (9, 16, [0, 3])],
                         ids=["tail-1-of-32", "tail-1-of-64", "tail-6-of-16", "packed", "packed-short"])
def test_T12_no_byte_outside_the_result_is_written(T, chunk_size, offsets, head_first, module, device):
    inputs = make_inputs("random", T=T, H=1, HV=2, K=16, chunk_size=chunk_size, cu_seqlens=offsets, device=device)
    tensors = [x.transpose(1, 2).contiguous() if head_first else x for x in inputs.args[:3]]
    tensors += [inputs.cu_seqlens, _table(inputs)]
    out, launches = module.plan(*tensors, chunk_size=chunk_size, output_dtype=torch.float32, num_cores=2,
                                head_first=head_first, output_head_first=head_first)
    guarded = Guarded(out, launches)
    for launch in guarded.launches:
        launch.run()
    guarded.check(tensors)
    assert_accurate(guarded.out.transpose(1, 2) if head_first else guarded.out, exact(inputs), inputs)


@pytest.mark.parametrize("T", [97, 104, 108, 109, 96, 110])  # 289, 296, 300, 301 and 288, 302 less six chunks of 32
def test_T13_tails_of_32_chunks(T, device):
    hold(make_inputs("cosine_95", T=T if device == "cpu" else T + 192, H=1, K=16, chunk_size=32, device=device))


@pytest.mark.parametrize("T", range(1, 25))
def test_T15_lengths_1_to_24(T, device):
    hold(make_inputs("cosine_50", T=T, H=1, K=16, chunk_size=32, device=device))


def test_T16_padding_with_beta_zero_equals_no_padding(device):
    full = make_inputs("cosine_95", T=64, H=1, K=16, device=device)
    full.g[:, 36:] = full.g[:, 35:36]
    full.beta[:, 36:] = 0
    out = fused(*full.args)
    short = fused(*(x[:, :36] for x in full.args[:3]))
    assert torch.equal(out[:, :36], short)
    assert torch.equal(out[0, 36:, 0], torch.eye(64, device=device)[36:])


@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
def test_T18_one_and_two_tokens_in_closed_form(chunk_size, B, device):
    inputs = make_inputs("random", B=B, T=2, H=1, K=16, chunk_size=chunk_size, device=device)
    eye = torch.eye(chunk_size, device=device)
    assert torch.equal(fused(*(x[:, :1] for x in inputs.args[:3]), None, chunk_size)[:, 0, 0], eye[:1].expand(B, -1))
    out = fused(*inputs.args)
    below = reference.kkt(*inputs.args)[:, 1, 0, 0]
    assert torch.equal(out[:, 1, 0, 1:], eye[1:2, 1:].expand(B, -1))
    assert torch.allclose(out[:, 1, 0, 0].double(), -below, rtol=1e-6, atol=0)


def test_a_result_reused_as_memory_shows_no_earlier_call(device):
    """The allocator hands out the memory of the last, larger result; its numbers must not shine through."""
    small = make_inputs("random", T=17, H=1, K=16, chunk_size=16, cu_seqlens=[0, 5], device=device)
    first = fused(*small.args)
    big = make_inputs("beta2_repeated", T=17, H=1, K=16, chunk_size=16, device=device)
    for _ in range(3):
        fused(*big.args)
        assert torch.equal(fused(*small.args), first)
    assert chunk_errors(first, exact(small), 16, small.cu_seqlens).max() < 1e-5
