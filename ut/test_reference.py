"""The oracle itself: against a scalar loop in extended precision, a closed form, and its own properties."""
from __future__ import annotations

import numpy as np
import pytest
import torch

from mindspeed_kkt_plugin import reference
from ut.accuracy import chunk_errors
from ut.inputs import REGIMES, make_inputs


def by_hand(inputs, head, start, end):
    """One chunk in numpy's long double, entry by entry."""
    rows = range(start, end)
    k = [inputs.k[0, t, head * inputs.k.shape[2] // inputs.g.shape[2]].numpy().astype(np.longdouble) for t in rows]
    g = inputs.g[0, start:end, head].numpy().astype(np.longdouble)
    beta = inputs.beta[0, start:end, head].numpy().astype(np.longdouble)
    n = end - start
    out = np.eye(n, dtype=np.longdouble)
    for i in range(n):
        low = [beta[i] * np.exp(np.clip(g[i] - g[j], -50, 50)) * (k[i] @ k[j]) for j in range(i)]
        for j in range(i):
            out[i, j] = -sum(low[m] * out[m, j] for m in range(j, i))
    return torch.from_numpy(out.astype(np.float64))


@pytest.mark.parametrize("regime", REGIMES)
def test_equals_a_scalar_loop_in_extended_precision(regime):
    inputs = make_inputs(regime, T=45, H=1, HV=2, K=24, chunk_size=32)
    out = reference.kkt_solve(*inputs.args)
    assert out.dtype == torch.float64
    for head in (0, 1):
        for start, end in ((0, 32), (32, 45)):
            hand = by_hand(inputs, head, start, end)
            gap = (out[0, start:end, head, :end - start] - hand).norm() / hand.norm()
            assert gap < 1e-12
            assert (out[0, start:end, head, end - start:] == 0).all()


@pytest.mark.parametrize("regime", REGIMES)
def test_product_with_its_matrix_is_the_identity(regime):
    inputs = make_inputs(regime, T=64, H=1, K=32)
    low = reference.kkt(*inputs.args)[0, :, 0]
    inverse = reference.kkt_solve(*inputs.args)[0, :, 0]
    eye = torch.eye(64, dtype=torch.float64)
    assert ((eye + low) @ inverse - eye).abs().max() < 1e-10 * max(1, inverse.abs().max().item())


@pytest.mark.parametrize("packed", [False, True], ids=["fixed", "packed"])
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
def test_float32_version_is_close_and_layouts_agree(chunk_size, packed):
    inputs = make_inputs("cosine_50", T=100, H=1, HV=3, K=32, chunk_size=chunk_size,
                         cu_seqlens=[0, 40, 40, 90] if packed else None)
    truth = reference.kkt_solve(*inputs.args)
    single = reference.kkt_solve(*inputs.args, dtype=torch.float32)
    assert single.dtype == torch.float32
    assert chunk_errors(single, truth, chunk_size, inputs.cu_seqlens).max() < 2e-6
    heads = [x.transpose(1, 2) for x in (inputs.k, inputs.g, inputs.beta)]
    other = reference.kkt_solve(*heads, inputs.cu_seqlens, chunk_size, head_first=True, output_head_first=True)
    assert torch.equal(other.transpose(1, 2), truth)
    assert torch.equal(reference.solve(reference.kkt(*inputs.args), inputs.cu_seqlens), truth)


def test_nothing_above_the_diagonal_is_read_by_solve():
    inputs = make_inputs("random", T=40, H=1, K=16, chunk_size=32)
    low = reference.kkt(*inputs.args)
    dirty = low.clone()
    upper = torch.arange(32) >= (torch.arange(40) % 32)[:, None]
    dirty[0, :, 0] = torch.where(upper, float("nan"), dirty[0, :, 0])
    assert torch.equal(reference.solve(dirty), reference.solve(low))


def test_a_pivoting_inverse_would_not_do_as_an_oracle():
    """Why substitution: long keys make LU with pivoting lose every digit where substitution keeps them."""
    inputs = make_inputs("random", T=64, H=1, K=128)
    inputs.k.mul_(11)  # about the length of un-normalised keys
    inputs.g.zero_()
    inputs.beta.fill_(0.5)
    truth = by_hand(inputs, 0, 0, 64)
    low = reference.kkt(*inputs.args)[0, :, 0]
    lu = torch.linalg.inv(torch.eye(64, dtype=torch.float64) + low)
    ours = reference.kkt_solve(*inputs.args)[0, :, 0]
    assert (ours - truth).norm() / truth.norm() < 1e-9 < (lu - truth).norm() / truth.norm()
