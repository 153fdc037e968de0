"""The portable kernel with its products made from bf16 parts, as on a GPU, here under the interpreter.

On the CPU the operator itself multiplies in fp32, so nothing else in this suite reaches that code.
"""
from __future__ import annotations

import pytest
import torch
import triton.language as tl

from mindspeed_kkt_plugin.kernels import portable, products
from ut.accuracy import FP32_BOUND, exact, worst_chunk
from ut.inputs import make_inputs


def _run(inputs) -> torch.Tensor:
    out, (launch,) = portable.plan(*inputs.args[:4], None, chunk_size=inputs.chunk_size, output_dtype=torch.float32,
                                   head_first=False, output_head_first=False, num_cores=2)
    launch.kernel[launch.grid](**launch.args, **{**launch.constants, "SPLIT": True}, **launch.options)
    return out


@pytest.fixture(autouse=True)
def interpreted(device):
    if device != "cpu":
        pytest.skip(f"needs Triton's interpreter; on {device} the operator's own tests reach this code")


@pytest.mark.parametrize("chunk_size", [16, 32, 64])
@pytest.mark.parametrize("regime", ["random", "repeated", "cosine_95"])
def test_parts_reach_fp32_on_correlated_keys(regime, chunk_size):
    inputs = make_inputs(regime, T=chunk_size + 5, H=1, K=32, chunk_size=chunk_size)
    assert worst_chunk(_run(inputs), exact(inputs), inputs) < FP32_BOUND


def test_two_parts_would_not_be_enough(monkeypatch):
    """The bound above is not loose: without the third part of every factor it is far exceeded."""
    inputs = make_inputs("repeated", T=64, H=1, K=32)
    truth = exact(inputs)
    three, cut = worst_chunk(_run(inputs), truth, inputs), products._cut.fn

    def short(b_x, PTX):
        b_part, b_rest = cut(b_x, PTX)
        return b_part, b_rest.to(tl.bfloat16).to(tl.float32)

    monkeypatch.setattr(products, "_cut", short)
    assert worst_chunk(_run(inputs), truth, inputs) > max(FP32_BOUND, 10 * three)


@pytest.mark.parametrize("key,out", [
    (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16),
    (torch.float16, torch.float16),
], ids=str)
def test_products_are_split_on_cuda_whatever_the_types(key, out, monkeypatch):
    monkeypatch.setattr(portable, "INTERPRETED", False)
    absent = None, None
    for device, split in (("cuda", True), ("cpu", False)):
        *_, constants = portable._prepare.__wrapped__(
            (1, 64, 1, 16), (1024, 16, 16, 1), absent, absent, (1, 2, False), 64, -1, torch.device(device), key, out, 1)
        assert constants["SPLIT"] is split


def test_a_precision_it_does_not_have_is_refused():
    inputs = make_inputs("random", T=16, H=1, K=16, chunk_size=16)
    with pytest.raises(ValueError, match="precision.*'hf32'.*ieee"):
        portable.plan(*inputs.args[:4], None, chunk_size=16, output_dtype=torch.float32, head_first=False,
                      output_head_first=False, num_cores=2, precision="hf32")
