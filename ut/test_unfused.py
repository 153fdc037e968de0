"""The two calls of the baseline mean what MindSpeed's `chunk_scaled_dot_kkt_fwd` and `solve_tril` mean."""
from __future__ import annotations

import inspect

import pytest
import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin import reference
from ut.accuracy import assert_accurate, chunk_errors, exact
from ut.inputs import make_inputs

pytest.importorskip("triton", reason="the two-call chain needs Triton (pip install triton-ascend==3.2.0)")
from mindspeed_kkt_plugin.unfused import chunk_scaled_dot_kkt_fwd, solve_tril  # noqa: E402

PACKINGS = [pytest.param(None, id="fixed"), pytest.param([0, 0, 33, 50], id="packed")]


def test_signatures_are_mindspeeds():
    kkt = inspect.signature(chunk_scaled_dot_kkt_fwd).parameters
    assert list(kkt) == ["k", "g", "gk", "beta", "cu_seqlens", "chunk_size", "output_dtype"]
    assert kkt["chunk_size"].default == 64 and kkt["output_dtype"].default == torch.float32
    solve = inspect.signature(solve_tril).parameters
    assert list(solve) == ["A", "cu_seqlens", "output_dtype"]
    assert solve["output_dtype"].default == torch.float


@pytest.mark.parametrize("cu_seqlens", PACKINGS)
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_kkt(dtype, chunk_size, cu_seqlens, device):
    inputs = make_inputs("cosine_50", T=70, H=1, HV=2, K=40, chunk_size=chunk_size, cu_seqlens=cu_seqlens,
                         dtype=dtype, device=device)
    out = chunk_scaled_dot_kkt_fwd(inputs.k, inputs.g, None, inputs.beta, inputs.cu_seqlens, chunk_size)
    host = make_inputs("cosine_50", T=70, H=1, HV=2, K=40, chunk_size=chunk_size, cu_seqlens=cu_seqlens, dtype=dtype)
    truth = reference.kkt(*host.args)
    assert out.dtype == torch.float32 and out.shape == truth.shape
    assert (out.cpu() - truth).abs().max() < 1e-6
    assert (out.cpu()[truth == 0] == 0).all(), "a zero of the mask or of an uncovered row is not exact"


@pytest.mark.parametrize("with_g,with_beta", [(True, False), (False, True), (False, False)],
                         ids=["g", "beta", "neither"])
def test_kkt_without_gates(with_g, with_beta, device):
    inputs = make_inputs("random", T=20, H=2, K=16, chunk_size=16, with_g=with_g, with_beta=with_beta, device=device)
    out = chunk_scaled_dot_kkt_fwd(inputs.k, inputs.g, beta=inputs.beta, chunk_size=16)
    host = make_inputs("random", T=20, H=2, K=16, chunk_size=16, with_g=with_g, with_beta=with_beta)
    assert (out.cpu() - reference.kkt(*host.args)).abs().max() < 1e-6


@pytest.mark.parametrize("cu_seqlens", PACKINGS)
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16, torch.float16, None],
                         ids=["fp32", "bf16", "fp16", "same"])
def test_solve(out_dtype, chunk_size, cu_seqlens, device):
    inputs = make_inputs("cosine_50", T=70, H=1, HV=2, K=40, chunk_size=chunk_size, cu_seqlens=cu_seqlens,
                         device=device)
    low = reference.kkt(*inputs.args, dtype=torch.float32)
    out = solve_tril(low, inputs.cu_seqlens, out_dtype)
    assert out.dtype == (out_dtype or torch.float32)
    assert_accurate(out, exact(inputs), inputs)


def test_solve_ignores_what_is_not_strictly_lower(device):
    inputs = make_inputs("random", T=64, H=1, K=16, device=device)
    low = reference.kkt(*inputs.args, dtype=torch.float32)
    row = torch.arange(64, device=device)[:, None]
    dirty = torch.where(torch.arange(64, device=device) >= row, float("nan"), low[0, :, 0])[None, :, None]
    assert torch.equal(solve_tril(dirty), solve_tril(low))


@pytest.mark.parametrize("low_dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_solve_of_a_16_bit_matrix_computes_in_float32(low_dtype, device):
    inputs = make_inputs("cosine_50", T=64, H=1, K=16, device=device)
    low = reference.kkt(*inputs.args, dtype=torch.float32).to(low_dtype)
    out = solve_tril(low, output_dtype=torch.float32)
    assert chunk_errors(out, reference.solve(low.cpu()), 64).max() < 1e-5


def test_the_pair_equals_the_fused_operator(device):
    inputs = make_inputs("cosine_95", T=70, H=1, HV=2, K=32, device=device)
    pair = solve_tril(chunk_scaled_dot_kkt_fwd(inputs.k, inputs.g, beta=inputs.beta))
    assert chunk_errors(pair, fused(*inputs.args).cpu(), 64).max() < 1e-5


@pytest.mark.parametrize("call,kind,part", [
    (lambda d: chunk_scaled_dot_kkt_fwd(torch.ones(1, 4, 1, 8, device=d), gk=torch.ones(1, 4, 1, 8)), ValueError, "gk"),
    (lambda d: chunk_scaled_dot_kkt_fwd(torch.ones(1, 4, 1, 8, device=d), chunk_size=128), ValueError, "128"),
    (lambda d: solve_tril(torch.ones(1, 4, 1, 128, device=d)), ValueError, "A has shape"),
    (lambda d: solve_tril(torch.ones(4, 1, 16, device=d)), ValueError, "A has shape"),
    (lambda d: solve_tril(torch.ones(1, 4, 1, 16, device=d).double()), TypeError, "float64"),
    (lambda d: solve_tril(torch.ones(2, 4, 1, 16, device=d), torch.tensor([0, 4], device=d)), ValueError, "B = 2"),
    (lambda d: solve_tril(torch.ones(1, 4, 1, 16, device=d), output_dtype=torch.int8), TypeError, "int8"),
], ids=["gk", "kkt_chunk_size", "solve_chunk_size", "solve_axes", "solve_dtype", "packed_batch", "output_dtype"])
def test_bad_arguments(call, kind, part, device):
    with pytest.raises(kind, match=part):
        call(device)


@pytest.mark.parametrize("shape", [(0, 4, 1, 16), (1, 0, 1, 16)], ids=str)
def test_empty(shape, device):
    k = torch.empty(shape, device=device)
    low = chunk_scaled_dot_kkt_fwd(k, chunk_size=16)
    assert low.shape == solve_tril(low).shape == (*shape[:3], 16)
