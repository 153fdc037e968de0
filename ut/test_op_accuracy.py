"""The operator against float64 forward substitution: dtypes, shapes, gates, heads and the inputs that break inverses.

On the CPU the fused portable kernel runs under Triton's interpreter, so shapes are small.
"""
from __future__ import annotations

import pytest
import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin import status
from ut.accuracy import assert_accurate, exact
from ut.inputs import REGIMES, make_inputs

DTYPES = [pytest.param(torch.float32, id="fp32"), pytest.param(torch.bfloat16, id="bf16"),
          pytest.param(torch.float16, id="fp16")]

# B, T, H, HV, K, chunk_size
SHAPES = [
    (1, 64, 1, 1, 128, 64),
    (1, 128, 1, 1, 64, 64),
    (2, 64, 1, 2, 128, 64),
    (1, 100, 1, 1, 128, 64),
    (1, 65, 1, 2, 32, 64),
    (1, 63, 2, 2, 16, 64),
    (1, 1, 1, 1, 64, 64),
    (1, 64, 1, 3, 256, 64),
    (3, 17, 1, 1, 100, 64),
    (1, 64, 2, 4, 128, 32),
    (1, 70, 1, 1, 60, 32),
    (2, 33, 1, 1, 24, 32),
    (1, 48, 2, 2, 40, 16),
    (2, 15, 1, 2, 128, 16),
    (1, 20, 1, 1, 1, 16),
]


@pytest.fixture(autouse=True)
def the_fused_path_ran(device):
    """No fallback may pass for the kernel under test."""
    before = status()["calls"]
    yield
    ran = {name for name, calls in status()["calls"].items() if calls != before.get(name, 0)}
    assert ran <= {"npu": {"ascend"}}.get(device, {"portable"}), f"ran on {ran}: {status()['last']}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "B{}-T{}-H{}-HV{}-K{}-BT{}".format(*s))
def test_shapes(shape, dtype, device):
    B, T, H, HV, K, chunk_size = shape
    inputs = make_inputs("random", B, T, H, HV, K, chunk_size=chunk_size, dtype=dtype, device=device)
    out = fused(*inputs.args)
    assert out.dtype == dtype
    assert_accurate(out, exact(inputs), inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regime", REGIMES)
def test_regimes(regime, dtype, device):
    inputs = make_inputs(regime, T=100, H=1, K=128, dtype=dtype, device=device, seed=3)
    assert_accurate(fused(*inputs.args), exact(inputs), inputs, regime)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("chunk_size", [16, 32])
@pytest.mark.parametrize("regime", ["cosine_50", "beta_1_to_2", "steep_decay"])
def test_hard_regimes_at_smaller_chunks(regime, chunk_size, seed, device):
    inputs = make_inputs(regime, T=50, H=1, K=64, chunk_size=chunk_size, device=device, seed=seed)
    assert_accurate(fused(*inputs.args), exact(inputs), inputs, regime)


@pytest.mark.parametrize("heads", [(1, 1), (1, 2), (2, 4)], ids=lambda h: "H{}-HV{}".format(*h))
@pytest.mark.parametrize("with_g,with_beta", [(True, True), (True, False), (False, True), (False, False)],
                         ids=["g+beta", "g", "beta", "neither"])
def test_optional_gates(with_g, with_beta, heads, device):
    H, HV = heads
    inputs = make_inputs("cosine_50", T=40, H=H, HV=HV, K=32, chunk_size=32, with_g=with_g, with_beta=with_beta,
                         device=device)
    out = fused(*inputs.args)
    assert out.shape[2] == (HV if with_g or with_beta else H)
    assert_accurate(out, exact(inputs), inputs)


@pytest.mark.parametrize("out_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_output_dtype_is_chosen_freely(dtype, out_dtype, device):
    inputs = make_inputs("cosine_50", T=40, H=1, K=32, chunk_size=32, dtype=dtype, device=device)
    out = fused(*inputs.args, output_dtype=out_dtype)
    assert out.dtype == out_dtype
    assert_accurate(out, exact(inputs), inputs)


@pytest.mark.parametrize("gate_dtype", DTYPES[1:])
def test_16_bit_gates_equal_their_float32_values(gate_dtype, device):
    inputs = make_inputs("cosine_50", T=64, H=1, K=32, chunk_size=32, gate_dtype=gate_dtype, device=device)
    out = fused(*inputs.args)
    assert torch.equal(out, fused(inputs.k, inputs.g.float(), inputs.beta.float(), None, 32))
    assert_accurate(out, exact(inputs), inputs)


def test_16_bit_results_are_the_float32_result_rounded_once(device):
    inputs = make_inputs("cosine_50", T=64, H=1, K=32, chunk_size=64, device=device)
    full = fused(*inputs.args)
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(fused(*inputs.args, output_dtype=dtype), full.to(dtype))


@pytest.mark.parametrize("strength", [0.5, 1.0, 2.0])
def test_closed_form_of_one_repeated_axis_key(strength, device):
    """With unit key e0, beta b and decay d: -b (1 - b)^(i-j-1) exp(d (i - j)); checks the natural logarithm too."""
    inputs = make_inputs("random", T=64, H=1, K=16, device=device)
    inputs.k.zero_()[..., 0] = 1
    decay = -0.1
    place = torch.arange(64, device=device)
    g = (decay * (place + 1.0))[None, :, None]
    out = fused(inputs.k, g, torch.full_like(inputs.beta, strength))
    steps = (place[:, None] - place[None, :]).double()
    form = -strength * (1 - strength) ** (steps - 1).clamp_min(0) * torch.exp(decay * steps)
    form = torch.where(steps > 0, form, (steps == 0).double())
    assert (out[0, :, 0].double() - form).abs().max() < 1e-5


def test_grouped_value_heads_read_the_right_key_head(device):
    inputs = make_inputs("random", T=32, H=2, HV=4, K=32, chunk_size=32, device=device)
    out = fused(*inputs.args)
    repeated = fused(inputs.k.repeat_interleave(2, dim=2), inputs.g, inputs.beta, None, 32)
    assert torch.equal(out, repeated)


def test_decay_far_beyond_the_clamp_leaves_the_identity(device):
    inputs = make_inputs("steep_decay", T=65, H=1, K=32, device=device)
    out = fused(*inputs.args)
    eye = torch.eye(64, device=device)
    assert (out[0, :64, 0] - eye).abs().max() < 1e-8
    assert torch.equal(out[0, 64, 0], eye[0])


def test_repeated_calls_are_bit_identical(device):
    inputs = make_inputs("repeated", T=64, H=1, dtype=torch.bfloat16, device=device)
    first = fused(*inputs.args)
    for _ in range(2 if device == "cpu" else 20):
        assert torch.equal(fused(*inputs.args), first)


@pytest.mark.parametrize("step", [-60.0, 60.0], ids=["falling", "rising"])
def test_log_decay_differences_are_clamped_at_50_like_mindspeeds(step, device):
    k = torch.ones(1, 2, 1, 1, device=device)
    g = torch.tensor([0.0, step], device=device)[None, :, None]
    out = fused(k, g, None, None, 16)[0, 1, 0, 0].double().item()
    assert out == pytest.approx(-torch.tensor(50.0 if step > 0 else -50.0).double().exp().item(), rel=1e-5)
