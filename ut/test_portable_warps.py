"""A chunk of 64 made by four warps, which only calls of few chunks on a GPU take, held to what one warp gives.

On the CPU both run under the interpreter, whatever the number of chunks.
"""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mindspeed_kkt_plugin.kernels import portable
from mindspeed_kkt_plugin.varlen import prepare_chunk_indices
from ut.accuracy import assert_accurate, exact
from ut.inputs import make_inputs

PACKED = [0, 0, 65, 66, 130, 193]


@pytest.fixture(autouse=True)
def portable_device(device):
    if device == "npu":
        pytest.skip("the portable kernel does not run there")


def made_by(warps: int, inputs, dtype=None, head_first=False) -> torch.Tensor:
    """Token-first result of the portable kernel with this many warps a chunk."""
    cu = inputs.cu_seqlens
    tensors = [x.transpose(1, 2).contiguous() if head_first and x is not None else x for x in inputs.args[:3]]
    out, (launch,) = portable.plan(
        *tensors, cu, None if cu is None else prepare_chunk_indices(cu, 64), chunk_size=64, num_cores=1,
        output_dtype=dtype or inputs.k.dtype, head_first=head_first, output_head_first=head_first)
    out.fill_(float("nan"))
    replace(launch, constants=launch.constants | {"WARPS": warps},
            options=launch.options | {"num_warps": warps}).run()
    return out.transpose(1, 2) if head_first else out


def hold(inputs, regime="random", **options):
    four, one = (made_by(warps, inputs, **options) for warps in (4, 1))
    assert_accurate(four, exact(inputs), inputs, regime)
    if inputs.k.device.type == "cuda":
        assert torch.equal(four, one), "a chunk has the same bits, however many chunks a call has"
    else:  # fp32 products there add up in another order
        assert_accurate(one, exact(inputs), inputs, regime)


@pytest.mark.parametrize("regime", ["random", "repeated", "cosine_95", "beta2_repeated", "wide_gates"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_regimes(regime, dtype, device):
    hold(make_inputs(regime, T=128, H=1, HV=2, K=128, dtype=dtype, device=device), regime)


@pytest.mark.parametrize("T,packing", [(1, None), (17, None), (101, None), (200, PACKED)],
                         ids=["one-token", "tail-17", "tail-37", "packed"])
@pytest.mark.parametrize("head_first", [False, True], ids=["token_first", "head_first"])
def test_tails_and_packed(T, packing, head_first, device):
    hold(make_inputs("cosine_95", T=T, H=1, HV=2, K=60, dtype=torch.bfloat16, cu_seqlens=packing, device=device),
         "cosine_95", head_first=head_first)


@pytest.mark.parametrize("absent", ["g", "beta"])
def test_without_gate_or_beta(absent, device):
    inputs = make_inputs("cosine_50", T=70, H=2, K=32, device=device)
    hold(replace(inputs, **{absent: None}), dtype=torch.float32)


def test_few_chunks_on_a_gpu_take_four_warps(monkeypatch):
    monkeypatch.setattr(portable, "INTERPRETED", False)
    absent = None, None

    def warps(device, T, chunk_size=64, cores=132):
        *_, constants = portable._prepare.__wrapped__(
            (1, T, 4, 16), (T * 64, 64, 16, 1), absent, absent, (1, 2, False), chunk_size, -1, torch.device(device),
            torch.bfloat16, torch.bfloat16, cores)
        return constants["WARPS"]

    most = portable.FEW * 132 // 4 * 64
    assert warps("cuda", most) == 4 and warps("cuda", most + 1) == 1
    assert warps("cuda", 64, chunk_size=32) == 1 and warps("cpu", 64) == 1
