"""Sizes that only matter, or only finish soon, on an accelerator: long sequences, many heads, offsets past 2^31."""
from __future__ import annotations

import pytest
import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from ut.accuracy import assert_accurate, exact
from ut.inputs import make_inputs

pytestmark = pytest.mark.slow

MIXED_TAILS = [0, 2049, 3060, 3573, 3829, 3957, 4022, 4054, 4070, 4077, 4081, 4086, 4087]


@pytest.fixture
def accelerator(device):
    if device == "cpu":
        pytest.skip("needs an accelerator: pass --device cuda or npu")
    return device


@pytest.mark.parametrize("shape", [(2, 500, 4, 4, 64, 32), (2, 1000, 5, 5, 64, 64), (1, 1217, 1, 2, 128, 64)],
                         ids=lambda s: "B{}-T{}-H{}-HV{}-K{}-BT{}".format(*s))
def test_longer_sequences(shape, device):
    B, T, H, HV, K, chunk_size = shape
    inputs = make_inputs("random", B, T, H, HV, K, chunk_size=chunk_size, dtype=torch.bfloat16, device=device)
    assert_accurate(fused(*inputs.args), exact(inputs), inputs)


@pytest.mark.parametrize("int_dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
def test_mixed_tails_with_many_heads(int_dtype, accelerator):
    inputs = make_inputs("random", T=MIXED_TAILS[-1], H=16, HV=32, cu_seqlens=MIXED_TAILS, dtype=torch.bfloat16,
                         device=accelerator)
    out = fused(*inputs.args[:3], inputs.cu_seqlens.to(int_dtype))
    assert_accurate(out, exact(inputs), inputs)
    for start, end in zip(MIXED_TAILS, MIXED_TAILS[1:], strict=False):
        alone = fused(*(x[:, start:end].contiguous() for x in inputs.args[:3]))
        assert torch.equal(out[:, start:end], alone)


@pytest.mark.parametrize("T", [65536 * 2 - 64, 65536 * 2], ids=["below_65536_tiles", "at_65536_tiles"])
def test_grid_limits(T, accelerator):
    """65,536 (chunk, head) pairs are one more than an Ascend grid may have programs."""
    inputs = make_inputs("random", T=64, H=32, K=16, dtype=torch.bfloat16, device=accelerator)
    many = [x.repeat(1, T // 64, *(1,) * (x.dim() - 2)) for x in inputs.args[:3]]
    out = fused(*many)
    assert torch.equal(out, fused(*inputs.args).repeat(1, T // 64, 1, 1))


def test_keys_and_results_beyond_2_to_the_31_elements(accelerator):
    B, T, H = 16, 17477, 64  # the last sample starts 90,112 elements past 2^31
    inputs = make_inputs("random", T=T, H=H, HV=H, dtype=torch.bfloat16, device=accelerator)
    many = [x.expand(B, *x.shape[1:]).contiguous() for x in inputs.args[:3]]
    out = fused(*many)
    assert torch.equal(out[-1:], fused(*inputs.args))


@pytest.mark.parametrize("repeats", [20])
def test_bit_identical_with_other_work_in_between(repeats, accelerator):
    inputs = make_inputs("repeated", T=4096, H=32, dtype=torch.bfloat16, device=accelerator)
    first = fused(*inputs.args)
    for _ in range(repeats):
        torch.randn(1 << 24, device=accelerator).sort()  # other programs dirty the caches and on-chip memories
        assert torch.equal(fused(*inputs.args), first)
