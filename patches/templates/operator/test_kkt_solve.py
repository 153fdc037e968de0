"""chunk_gated_delta_rule_fwd_kkt_solve against float64 forward substitution, on easy and on correlated keys.

On an NPU this runs the fused kernel; elsewhere the same calls take the operator's torch path. An LU inverse is no
oracle here: it loses all digits where keys repeat.
"""
import math

import pytest
import torch
import torch.nn.functional as F

from upstream_package import chunk_gated_delta_rule_fwd_kkt_solve, enable_fused_kkt_solve, fused_kkt_solve_takes, paths
from upstream_package.reference import kkt_solve
from upstream_package.varlen import chunk_rows

device = "npu" if hasattr(torch, "npu") and torch.npu.is_available() else "cpu"

# keys' cosine, log decay a token, beta
REGIMES = {
    "random": (0.0, -0.05, 0.5),
    "correlated": (0.95, -1e-4, 0.99),
    "repeated": (1.0, 0.0, 1.0),
    "steep": (0.0, -20.0, 0.9),
    "beta2": (1.0, 0.0, 2.0),
}


def make(regime, B, T, H, HV, K, dtype, chunk_size, cu_seqlens=None):
    cosine, decay, strength = REGIMES[regime]
    gen = torch.Generator().manual_seed(0)
    common = F.normalize(torch.randn(B, 1, H, K, generator=gen), dim=-1)
    noise = F.normalize(torch.randn(B, T, H, K, generator=gen), dim=-1)
    k = F.normalize(math.sqrt(cosine) * common + math.sqrt(1 - cosine) * noise, dim=-1).to(dtype)
    g = torch.zeros(B, T, HV)
    rows, valid = chunk_rows(T, chunk_size, cu_seqlens)
    steps = torch.arange(1, chunk_size + 1).expand(rows.shape)
    g[:, rows[valid]] = (decay * steps[valid]).float()[None, :, None]
    return k, g, torch.full((B, T, HV), strength).to(dtype)


def worst_chunk(out, truth, chunk_size, cu_seqlens):
    rows, valid = chunk_rows(truth.shape[1], chunk_size, cu_seqlens)
    keep = valid[None, :, :, None, None]
    gap = torch.where(keep, (out.cpu().double() - truth)[:, rows], 0).square().sum((2, 4))
    return (gap / torch.where(keep, truth[:, rows], 0).square().sum((2, 4))).sqrt().max().item()


def check(regime, B, T, H, HV, K, dtype, chunk_size, offsets=None):
    cu_seqlens = None if offsets is None else torch.tensor(offsets, dtype=torch.int64)
    k, g, beta = make(regime, B, T, H, HV, K, dtype, chunk_size, cu_seqlens)
    out = chunk_gated_delta_rule_fwd_kkt_solve(
        k.to(device), g.to(device), beta.to(device), None if cu_seqlens is None else cu_seqlens.to(device), chunk_size
    ).cpu()
    truth = kkt_solve(k, g, beta, cu_seqlens, chunk_size)
    assert out.shape == (B, T, HV, chunk_size) and out.dtype == dtype and torch.isfinite(out).all()
    floor = worst_chunk(truth.to(dtype), truth, chunk_size, cu_seqlens)  # what rounding once costs
    limit = (5e-5 if regime == "beta2" else 1e-5) if dtype == torch.float32 else 1.1 * floor
    assert worst_chunk(out, truth, chunk_size, cu_seqlens) <= limit
    rows, valid = chunk_rows(T, chunk_size, cu_seqlens)
    place = torch.arange(chunk_size).expand(valid.shape)[valid][None, :, None, None]
    column = torch.arange(chunk_size)
    assert (torch.where(column > place, out[:, rows[valid]], 0) == 0).all()
    assert (torch.where(column == place, out[:, rows[valid]], 1) == 1).all()
    outside = torch.ones(T, dtype=torch.bool)
    outside[rows[valid]] = False
    assert (out[:, outside] == 0).all()


@pytest.mark.parametrize("regime", sorted(REGIMES))
@pytest.mark.parametrize(
    ("B", "T", "H", "HV", "K", "dtype", "chunk_size"),
    [
        pytest.param(*test, id="B{}-T{}-H{}-HV{}-K{}-{}-chunk_size{}".format(*test).replace("torch.", ""))
        for test in [
            (1, 64, 1, 1, 128, torch.float32, 64),
            (1, 1024, 8, 8, 128, torch.bfloat16, 64),
            (2, 1000, 5, 5, 128, torch.bfloat16, 64),
            (2, 500, 4, 8, 64, torch.float16, 64),
            (1, 100, 16, 32, 128, torch.float32, 64),
            (1, 63, 2, 2, 128, torch.bfloat16, 16),
        ]
    ],
)
def test_matches_forward_substitution(regime, B, T, H, HV, K, dtype, chunk_size):
    check(regime, B, T, H, HV, K, dtype, chunk_size)


@pytest.mark.parametrize("regime", sorted(REGIMES))
@pytest.mark.parametrize(
    ("HV", "K", "chunk_size", "offsets"),
    [
        pytest.param(*test, id="HV{}-K{}-chunk_size{}-cu_seqlens{}".format(*test))
        for test in [
            (4, 128, 64, [0, 15]),
            (4, 128, 64, [0, 15, 100, 300, 1200]),
            (8, 64, 64, [0, 0, 64, 64, 193]),
            (4, 128, 32, [0, 256, 500]),
        ]
    ],
)
def test_matches_forward_substitution_varlen(regime, HV, K, chunk_size, offsets):
    check(regime, 1, offsets[-1] + 7, 4, HV, K, torch.bfloat16, chunk_size, offsets)


def test_head_first_layouts_give_the_same_numbers():
    k, g, beta = (x.to(device) for x in make("random", 2, 200, 4, 4, 128, torch.bfloat16, 64))
    out = chunk_gated_delta_rule_fwd_kkt_solve(k, g, beta)
    other = chunk_gated_delta_rule_fwd_kkt_solve(
        k.transpose(1, 2), g.transpose(1, 2), beta.transpose(1, 2), head_first=True, output_head_first=True
    )
    assert other.is_contiguous() and torch.equal(other.transpose(1, 2), out)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(chunk_size=48), "chunk_size"),
        (dict(k=torch.zeros(1, 64, 128)), "k has shape"),
        (dict(g=torch.zeros(1, 63, 2)), "g has shape"),
        (dict(beta=torch.zeros(1, 64, 3)), "beta"),
    ],
    ids=["chunk_size", "k", "g", "beta"],
)
def test_bad_arguments_are_named(change, message):
    call = dict(k=torch.zeros(1, 64, 2, 128), g=torch.zeros(1, 64, 2), beta=torch.zeros(1, 64, 2)) | change
    with pytest.raises((TypeError, ValueError), match=message):
        chunk_gated_delta_rule_fwd_kkt_solve(**call)


def test_switch_is_off_by_default_and_follows_the_kernel():
    k, g, beta = (x.to(device) for x in make("random", 1, 128, 2, 2, 128, torch.bfloat16, 64))
    assert not fused_kkt_solve_takes(k, g, beta)
    enable_fused_kkt_solve()
    try:
        assert fused_kkt_solve_takes(k, g, beta) == (device == "npu")
        assert not fused_kkt_solve_takes(k, g, beta, chunk_size=48)
    finally:
        enable_fused_kkt_solve(False)


@pytest.mark.skipif(device == "cpu", reason="needs an NPU: the fused kernel uses slices, which no interpreter has")
def test_fused_kernel_ran():
    k, g, beta = (x.to(device) for x in make("random", 1, 1024, 8, 8, 128, torch.bfloat16, 64))
    chunk_gated_delta_rule_fwd_kkt_solve(k, g, beta)
    assert (paths.status()["last"] or {}).get("path") == "ascend"
