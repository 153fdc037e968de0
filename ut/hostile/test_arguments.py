"""Published failures of heads, sizes, layouts and arguments (ids H.. of cases.md). Errors: test_bad_calls.py."""
from __future__ import annotations

import inspect

import pytest
import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from ut.accuracy import assert_accurate, exact, worst_chunk
from ut.hostile.memory import poisoned
from ut.hostile.properties import assert_agree
from ut.inputs import Inputs, make_inputs

pytest.importorskip("triton", reason="the two-call chain needs Triton (pip install triton-ascend==3.2.0)")
from mindspeed_kkt_plugin.unfused import chunk_scaled_dot_kkt_fwd, solve_tril  # noqa: E402

DTYPES = [pytest.param(torch.float32, id="fp32"), pytest.param(torch.bfloat16, id="bf16")]


def hold(inputs: Inputs) -> torch.Tensor:
    out = fused(*inputs.args)
    assert_accurate(out, exact(inputs), inputs)
    return out


@pytest.mark.parametrize("path,H,HV", [
    ("first", 2, 4), ("first", 1, 8), ("first", 16, 48), ("two_call", 2, 4), ("two_call", 1, 8), ("torch", 2, 4),
    ("torch", 16, 32), ("torch", 16, 48), ("torch", 1, 8)], ids=str)
def test_H01_grouped_heads_equal_interleaved_keys(path, H, HV, device, monkeypatch):
    if path != "first":
        monkeypatch.setenv("MINDSPEED_KKT_PATH", path)
    inputs = make_inputs("cosine_50", T=2, H=H, HV=HV, K=16, chunk_size=16, device=device)
    interleaved = inputs.k.repeat_interleave(HV // H, dim=2)
    assert torch.equal(hold(inputs), fused(interleaved, *inputs.args[1:]))
    if H > 1:
        assert not torch.equal(fused(*inputs.args), fused(inputs.k.repeat(1, 1, HV // H, 1), *inputs.args[1:]))


@pytest.mark.parametrize("H,HV", [(3, 4), (4, 2), (2, 3), (5, 1)])
@pytest.mark.parametrize("gate", ["g", "beta"])
def test_H03_value_heads_must_be_a_multiple(gate, H, HV, device):
    with pytest.raises(ValueError, match=f"{gate} has HV = {HV} value heads; HV must be a multiple of k's H = {H}"):
        fused(torch.ones(1, 4, H, 16, device=device), **{gate: torch.zeros(1, 4, HV, device=device)})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("K", [129, 192, 255, 256])
def test_H04_wide_keys(K, dtype, device):
    hold(make_inputs("cosine_95", T=65, H=1, K=K, dtype=dtype, device=device))


@pytest.mark.parametrize("K", [1, 2, 3, 15, 17, 31, 33])
def test_H04_narrow_keys(K, device):
    hold(make_inputs("random", T=20, H=1, K=K, chunk_size=16, device=device))


@pytest.mark.parametrize("chunk_size", [8, 24, 48, 128, 256, 0, -16])
def test_H06_H07_other_chunk_sizes_are_refused_in_all_three_operators(chunk_size, device):
    k = torch.ones(1, 40, 1, 16, device=device)
    for call in (lambda: fused(k, None, None, None, chunk_size),
                 lambda: chunk_scaled_dot_kkt_fwd(k, chunk_size=chunk_size)):
        with pytest.raises(ValueError, match=f"chunk_size is {chunk_size}; allowed: an int of 16, 32, 64"):
            call()
    with pytest.raises(ValueError, match="BT among 16, 32, 64"):
        solve_tril(torch.ones(1, 40, 1, max(chunk_size, 0), device=device))


@pytest.mark.parametrize("chunk_size", [16, 32, 64])
def test_H06_chunks_longer_than_the_sequence(chunk_size, device):
    hold(make_inputs("cosine_95", T=7, H=1, K=16, chunk_size=chunk_size, device=device))


@pytest.mark.parametrize("shift", [0, 1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_H09_rows_of_a_convolution_with_an_odd_offset(dtype, shift, device):
    """q, k and v side by side: row stride 3 H K, first element anywhere."""
    inputs = make_inputs("cosine_50", T=33, H=2, K=16, chunk_size=32, dtype=dtype, device=device)
    flat = torch.full((33 * 3 * 32 + 40 + shift,), float("nan"), dtype=dtype, device=device)
    k = flat.as_strided((1, 33, 2, 16), (33 * 96, 96, 16, 1), 32 + shift).copy_(inputs.k)
    assert torch.equal(fused(k, *inputs.args[1:]), hold(inputs))


@pytest.mark.parametrize("H,HV", [(1, 1), (2, 4)], ids=str)
def test_H10_no_gate_equals_gates_of_zero_and_no_beta_equals_ones(H, HV, device):
    inputs = make_inputs("cosine_50", T=33, H=H, HV=HV, K=16, chunk_size=32, device=device)
    k, g, beta = inputs.args[:3]
    assert torch.equal(fused(k, None, beta, None, 32), fused(k, torch.zeros_like(g), beta, None, 32))
    assert torch.equal(fused(k, g, None, None, 32), fused(k, g, torch.ones_like(beta), None, 32))
    assert torch.equal(fused(k, None, None, None, 32),
                       fused(k, torch.zeros(1, 33, H, device=device), None, None, 32))


def test_H12_third_positional_argument_is_beta_here_and_gk_in_the_two_calls(device):
    inputs = make_inputs("cosine_50", T=20, H=1, K=16, chunk_size=16, device=device)
    k, g, beta = inputs.args[:3]
    assert list(inspect.signature(fused).parameters)[:4] == ["k", "g", "beta", "cu_seqlens"]
    low = chunk_scaled_dot_kkt_fwd(k, g, None, beta, None, 16)
    assert torch.equal(low, chunk_scaled_dot_kkt_fwd(k=k, g=g, beta=beta, chunk_size=16))
    assert worst_chunk(solve_tril(low), fused(k, g, beta, None, 16).cpu(), inputs) < 1e-6
    with pytest.raises(ValueError, match="gk .*not supported"):
        chunk_scaled_dot_kkt_fwd(k, g, beta)  # the other signature's order: an error, not a different result
    with pytest.raises(TypeError, match="chunk_indices"):
        chunk_scaled_dot_kkt_fwd(k, g, beta=beta, chunk_indices=torch.zeros(1, 2, dtype=torch.int64))


def test_H13_a_gate_per_channel_is_refused(device):
    k = torch.ones(1, 4, 1, 16, device=device)
    with pytest.raises(ValueError, match="gk .*not supported"):
        chunk_scaled_dot_kkt_fwd(k, None, torch.zeros_like(k))
    with pytest.raises(ValueError, match=r"g has shape \(1, 4, 1, 16\); it must be \[B, T, HV\]"):
        fused(k, torch.zeros_like(k))


@pytest.mark.parametrize("B,T,H,chunk_size", [(2, 500, 4, 32), (2, 1000, 5, 64)], ids=str)
def test_H15_shapes_of_a_sibling_whose_own_tests_fail(B, T, H, chunk_size, device):
    if device == "cpu":  # the same tails: 500 = 15 * 32 + 20, 1000 = 15 * 64 + 40
        T, H = T % chunk_size + chunk_size, 1
    hold(make_inputs("random", B=B, T=T, H=H, K=64, chunk_size=chunk_size, device=device))


@pytest.mark.parametrize("path", ["first", "two_call", "torch"])
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
def test_H16_fixed_length_with_a_batch(chunk_size, path, device, monkeypatch):
    if path != "first":
        monkeypatch.setenv("MINDSPEED_KKT_PATH", path)
    inputs = make_inputs("cosine_50", B=3, T=35, H=1, K=16, chunk_size=chunk_size, device=device)
    out = hold(inputs)
    for b in range(3):
        lone = fused(*(x[b:b + 1] for x in inputs.args[:3]), None, chunk_size)
        assert_agree(out[b:b + 1], lone, path, device)


@pytest.mark.parametrize("path", ["first", "two_call", "torch"])
def test_H18_no_argument_is_ever_changed(path, device, monkeypatch):
    """Offsets included: whoever passes them finds the boundaries they passed."""
    if path != "first":
        monkeypatch.setenv("MINDSPEED_KKT_PATH", path)
    inputs = make_inputs("cosine_50", T=64, H=1, K=16, chunk_size=16, cu_seqlens=[0, 30, 64], device=device)
    tensors = inputs.args[:4]
    before = [(x.clone(), x._version) for x in tensors]
    fused(*inputs.args)
    for x, (copy, version) in zip(tensors, before, strict=True):
        assert torch.equal(x, copy) and x._version == version


@pytest.mark.parametrize("low,asked,got", [
    (torch.float32, torch.bfloat16, torch.bfloat16), (torch.bfloat16, None, torch.bfloat16),
    (torch.float16, torch.float32, torch.float32), (torch.float32, torch.float16, torch.float16),
], ids=str)
def test_H19_solve_gives_the_dtype_asked_for_rounded_once(low, asked, got, device):
    inputs = make_inputs("cosine_95", T=40, H=1, K=16, chunk_size=32, device=device)
    A = chunk_scaled_dot_kkt_fwd(inputs.k, inputs.g, None, inputs.beta, None, 32, low)
    out = solve_tril(A, output_dtype=asked)
    assert out.dtype == got
    assert torch.equal(out, solve_tril(A, output_dtype=torch.float32).to(got)), "not the nearest, ties to even"


@pytest.mark.parametrize("name", ["k", "g", "beta"])
def test_views_with_a_sign_flag_are_read_with_their_sign(name, device):
    inputs = make_inputs("cosine_50", T=20, H=1, K=16, chunk_size=16, device=device)
    expected = hold(inputs)
    setattr(inputs, name, torch._neg_view(-getattr(inputs, name)))  # as `z.conj().imag` makes them
    assert getattr(inputs, name).is_neg()
    assert torch.equal(fused(*inputs.args), expected)
    low = chunk_scaled_dot_kkt_fwd(inputs.k, inputs.g, None, inputs.beta, None, 16)
    assert worst_chunk(solve_tril(torch._neg_view(-low)), expected.cpu(), inputs) < 1e-6


def test_every_layout_and_view_at_once_in_poison(device, unwritten_is_nan):
    inputs = make_inputs("cosine_50", T=40, H=2, HV=4, K=16, chunk_size=16, cu_seqlens=[0, 7, 7, 30], device=device)
    out = fused(*(poisoned(x).transpose(1, 2) for x in inputs.args[:3]), *inputs.args[3:], head_first=True,
                output_head_first=True)
    assert out.is_contiguous() and torch.equal(out.transpose(1, 2), hold(inputs))
