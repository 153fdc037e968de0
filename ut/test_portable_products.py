"""The portable kernel with its products made from bf16 parts, as on a GPU, here under the interpreter.

On the CPU the operator itself multiplies in fp32, so nothing else in this suite reaches that code.
"""
from __future__ import annotations

import pytest
import torch

from mindspeed_kkt_plugin.kernels import portable
from ut.accuracy import exact, worst_chunk
from ut.inputs import make_inputs


def _run(inputs, parts: int, output_dtype=torch.float32) -> torch.Tensor:
    out, (launch,) = portable.plan(*inputs.args[:4], None, chunk_size=inputs.chunk_size, output_dtype=output_dtype,
                                   head_first=False, output_head_first=False, num_cores=2)
    launch.kernel[launch.grid](**launch.args, **{**launch.constants, "PARTS": parts}, **launch.options)
    return out


@pytest.fixture(autouse=True)
def interpreted(device):
    if device != "cpu":
        pytest.skip(f"needs Triton's interpreter; on {device} the operator's own tests reach this code")


@pytest.mark.parametrize("parts,limit", [(2, 2e-4), (3, 1e-5)], ids=["two-parts", "three-parts"])
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
@pytest.mark.parametrize("regime", ["random", "repeated", "cosine_95"])
def test_parts_reach_their_precision_on_correlated_keys(regime, chunk_size, parts, limit):
    inputs = make_inputs(regime, T=chunk_size + 5, H=1, K=32, chunk_size=chunk_size)
    assert worst_chunk(_run(inputs, parts), exact(inputs), inputs) < limit


def test_one_part_would_not_be_enough():
    """The limits above are not loose: two parts err visibly more than three."""
    inputs = make_inputs("repeated", T=64, H=1, K=32)
    truth = exact(inputs)
    assert worst_chunk(_run(inputs, 2), truth, inputs) > 10 * worst_chunk(_run(inputs, 3), truth, inputs)


@pytest.mark.parametrize("key,out,expected", [
    (torch.bfloat16, torch.bfloat16, 2), (torch.bfloat16, torch.float32, 3), (torch.float32, torch.bfloat16, 3),
    (torch.float16, torch.float16, 3),
], ids=str)
def test_only_bf16_in_and_out_takes_two_parts_on_cuda(key, out, expected, monkeypatch):
    monkeypatch.setattr(portable, "INTERPRETED", False)
    assert portable.parts(torch.device("cuda"), key, out) == expected
    assert portable.parts(torch.device("cpu"), key, out) == 1


def test_a_precision_it_does_not_have_is_refused():
    inputs = make_inputs("random", T=16, H=1, K=16, chunk_size=16)
    with pytest.raises(ValueError, match="precision.*'hf32'.*ieee"):
        portable.plan(*inputs.args[:4], None, chunk_size=16, output_dtype=torch.float32, head_first=False,
                      output_head_first=False, num_cores=2, precision="hf32")
