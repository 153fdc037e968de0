"""Published failures of size (ids L.. of cases.md): offsets past 2^31 elements, grids, many short documents.

The CPU tests reserve address space that is never touched; sizes that need real memory run on an accelerator.
"""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin.kernels import portable
from ut.accuracy import assert_accurate, exact
from ut.hostile.memory import GUARD, Guarded, far
from ut.inputs import make_inputs

pytest.importorskip("triton", reason="the two-call chain needs Triton (pip install triton-ascend==3.2.0)")
from mindspeed_kkt_plugin import unfused  # noqa: E402

MODULES = [pytest.param(portable, id="portable"), pytest.param(unfused, id="two_call")]
AXES = {"batch": 0, "token": 1, "head": 2}
OPTIONS = dict(chunk_size=16, output_dtype=torch.float32, num_cores=2, head_first=False, output_head_first=False)


@pytest.fixture
def on_the_cpu(device):
    if device != "cpu":
        pytest.skip(f"reserves address space without touching it, as only a CPU does, not {device}")


def _launch(launches) -> None:
    for launch in launches:
        launch.run()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("axis", ["batch", "head"])
@pytest.mark.parametrize("name", ["k", "g", "beta"])
def test_L01_third_sample_or_head_beyond_2_to_the_31_elements(name, axis, module, on_the_cpu):
    inputs = make_inputs("cosine_50", B=3 if axis == "batch" else 1, T=17, H=3 if axis == "head" else 1, K=16,
                         chunk_size=16, dtype=torch.bfloat16, gate_dtype=torch.bfloat16)
    truth = exact(inputs)
    setattr(inputs, name, far(getattr(inputs, name), AXES[axis], 2**30 + 64))
    out, launches = module.plan(*inputs.args[:4], None, **OPTIONS)
    _launch(launches)
    assert_accurate(out, truth, inputs)


@pytest.mark.parametrize("module", MODULES)
def test_L01_token_beyond_2_to_the_31_elements(module, on_the_cpu):
    """Only the last of many chunks is listed, so that one program runs; its first key lies 2^31 elements in."""
    stride, tokens = 2**24, 16
    inputs = make_inputs("cosine_50", T=tokens, H=1, K=16, chunk_size=16, dtype=torch.bfloat16,
                         gate_dtype=torch.bfloat16)
    T = 2**31 // stride + tokens
    k = torch.empty(T * stride, dtype=torch.bfloat16).as_strided((1, T, 1, 16), (T * stride, stride, 16, 1))
    k[:, -tokens:] = inputs.k
    g, beta = (torch.cat([torch.zeros(1, T - tokens, 1, dtype=x.dtype), x], 1) for x in (inputs.g, inputs.beta))
    last = torch.tensor([[0, T // 16 - 1]])
    out, launches = module.plan(k, g, beta, torch.tensor([0, T]), last, **OPTIONS)
    _launch(launches)
    assert_accurate(out[:, -tokens:], exact(inputs), inputs)


@pytest.mark.parametrize("axis", ["batch", "head"])
def test_L01_result_beyond_2_to_the_31_elements(axis, on_the_cpu):
    """The portable kernel's strides of the result are run-time numbers: they can be stretched."""
    inputs = make_inputs("cosine_50", B=3 if axis == "batch" else 1, T=17, H=3 if axis == "head" else 1, K=16,
                         chunk_size=16)
    out, (launch,) = portable.plan(*inputs.args[:4], None, **OPTIONS | {"output_dtype": torch.bfloat16})
    distant = far(torch.zeros_like(out), AXES[axis], 2**30 + 64)
    batch, token, head = distant.stride()[:3]
    replace(launch, args={**launch.args, "out": distant, "out_stride_b": batch, "out_stride_h": head},
            constants={**launch.constants, "out_stride_t": token}).run()
    assert_accurate(distant, exact(inputs), inputs)


def test_L02_inverse_beyond_2_to_the_31_elements(on_the_cpu):
    """T = 2^27 + 16, one head, rows of 16: only the last chunk is listed, and its rows start at 2^31."""
    T, inputs = 2**27 + 16, make_inputs("cosine_50", T=16, H=1, K=16, chunk_size=16)
    low = unfused.chunk_scaled_dot_kkt_fwd(inputs.k, inputs.g, None, inputs.beta, None, 16)
    A, out = (torch.empty(1, T, 1, 16) for _ in range(2))
    A[:, -16:] = low
    _launch(unfused.launch_solve(A, torch.tensor([0, T]), torch.tensor([[0, T // 16 - 1]]), out, num_cores=1,
                                 precision="ieee"))
    assert_accurate(out[:, -16:], exact(inputs), inputs)


def test_the_tests_above_would_see_a_wrapped_offset(on_the_cpu):
    """The reserved memory before a tensor reads as zeros: a result from a negative offset is wrong, not a crash."""
    x = far(torch.ones(1, 3, 2, dtype=torch.bfloat16), 1, 2**30 + 64)
    wrapped = x.storage_offset() + (2 * (2**30 + 64) - 2**32)
    assert x.as_strided((1,), (1,), wrapped).item() == 0 and x[0, 2, 0] == 1


def test_guards_see_an_overrun():
    class Overrun:
        name = "overrun"

    out = torch.zeros(8)
    guarded = Guarded(out, [])
    guarded.out.as_strided((1,), (1,), GUARD + 8).fill_(0)
    with pytest.raises(AssertionError, match="written outside"):
        guarded.check([])
    guarded = Guarded(out, [])
    guarded.out[0] = 5
    with pytest.raises(AssertionError, match="overwritten"):
        guarded.check([out])


@pytest.mark.parametrize("T,blocks", [(131008, 65504), (131072, 65536)])
def test_L04_grids_around_65536_blocks_fit_the_axes_of_cuda(T, blocks):
    k, gate = torch.empty(1, T, 4, 128, device="meta"), torch.empty(1, T, 32, device="meta")
    _, (launch,) = portable.plan(k, gate, gate, None, None, **OPTIONS | {"chunk_size": 64})
    assert launch.grid == (blocks, 1)


@pytest.mark.parametrize("B", [65535, 65536])
def test_L05_batches_beyond_a_grid_axis_take_another_path(B):
    k = torch.empty(B, 16, 1, 16, device="meta")
    reason = portable.refuse(k, None, None, None, None, **OPTIONS)
    assert (reason is None) == (B == 65535) and (reason is None or "65536" in reason and "65535" in reason)


def test_L07_prefix_is_the_same_for_any_length(device):
    lengths, H, BT = ((32, 48, 64), 2, 16) if device == "cpu" else ((1984, 2048, 4096), 32, 64)
    whole = make_inputs("cosine_95", T=lengths[-1], H=H, K=32, chunk_size=BT, device=device, dtype=torch.bfloat16)
    full = fused(*whole.args)
    for T in lengths[:-1]:
        part = [x[:, :T].contiguous() for x in whole.args[:3]]
        for _ in range(1 if device == "cpu" else 50):
            assert torch.equal(fused(*part, None, BT), full[:, :T])


def test_L08_many_short_documents(device):
    documents, HV = (120, 1) if device == "cpu" else (8192, 32)
    inputs = make_inputs("cosine_50", T=8 * documents, H=1, HV=HV, K=16, chunk_size=16, device=device,
                         cu_seqlens=list(range(0, 8 * documents + 1, 8)))
    assert_accurate(fused(*inputs.args), exact(inputs), inputs)


@pytest.mark.parametrize("tasks,cores", [(1, 1), (1, 8), (7, 8), (8, 8), (9, 8), (5, 2)])
def test_L10_two_calls_with_any_number_of_tasks_and_cores(tasks, cores, on_the_cpu):
    inputs = make_inputs("cosine_50", B=tasks, T=3, H=1, K=16, chunk_size=16)
    out, launches = unfused.plan(*inputs.args[:4], None, **OPTIONS | {"num_cores": cores})
    assert launches[0].grid == (min(tasks, cores),)
    _launch(launches)
    assert_accurate(out, exact(inputs), inputs)


@pytest.mark.slow
def test_L02_solve_of_6_gib(accelerator):
    def lower(samples):
        return torch.randn(samples, 16384, 12, 64, device=accelerator, dtype=torch.bfloat16) * 0.01

    A = lower(256)
    assert A.numel() > 2**31
    out = unfused.solve_tril(A)
    for half in (slice(0, 128), slice(128, 256)):
        assert torch.equal(out[half], unfused.solve_tril(A[half]))
