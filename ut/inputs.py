"""Named input regimes for the tests: easy ones, and those on which a wrong inverse cannot hide.

Random keys make L small, where even a diverging series looks right; correlated keys are the real test. Values are
drawn on the CPU from a fixed seed, so every device sees the same ones.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from mindspeed_kkt_plugin.varlen import chunk_rows


@dataclass
class Inputs:
    k: torch.Tensor  # [B, T, H, K]
    g: torch.Tensor | None  # [B, T, HV] fp32, natural log, cumulative inside the chunk
    beta: torch.Tensor | None  # [B, T, HV]
    cu_seqlens: torch.Tensor | None
    chunk_size: int

    @property
    def args(self) -> tuple:
        return self.k, self.g, self.beta, self.cu_seqlens, self.chunk_size


def _unit(x: torch.Tensor) -> torch.Tensor:
    return F.normalize(x, dim=-1)


def _keys(kind: str, shape: tuple[int, ...], gen: torch.Generator) -> torch.Tensor:
    noise = _unit(torch.randn(shape, generator=gen))
    if kind == "random":
        return noise
    if kind == "uniform":  # all positive: cosine about .75
        return _unit(torch.rand(shape, generator=gen))
    if kind == "unnormalised":
        return 0.15 * torch.randn(shape, generator=gen)
    common = _unit(torch.randn(shape[0], 1, shape[2], shape[3], generator=gen))
    if kind == "repeated":
        return common.expand(shape).clone()
    if kind == "four":
        palette = _unit(torch.randn(4, shape[3], generator=gen))
        return palette[torch.randint(4, shape[:3], generator=gen)]
    cosine = float(kind)
    return _unit(math.sqrt(cosine) * common + math.sqrt(1 - cosine) * noise)


# regime: (keys, decay per token, beta); None draws the decay or beta at random.
REGIMES: dict[str, tuple[str, float | str | None, float | str | None]] = {
    "random": ("random", None, None),
    "random_beta1": ("random", 0.0, 1.0),
    "repeated": ("repeated", -1e-3, 0.835),
    "repeated_beta1": ("repeated", 0.0, 1.0),
    "cosine_95": ("0.95", -1e-4, 0.99),
    "cosine_50": ("0.5", 0.0, 1.0),
    "four_keys": ("four", 0.0, 1.0),
    "uniform_keys": ("uniform", 0.0, 1.0),
    "beta2_repeated": ("repeated", 0.0, 2.0),
    "beta_1_to_2": ("0.5", -1e-2, "1..2"),
    "steep_decay": ("random", -20.0, None),
    "mixed_gates": ("0.5", "0 or -5", None),
    "wide_gates": ("random", "-316..0", None),
    "unnormalised": ("unnormalised", -0.05, 0.5),
}
BETA_TO_2 = frozenset({"beta2_repeated", "beta_1_to_2"})


def chunk_cumsum(steps: torch.Tensor, chunk_size: int, cu_seqlens: torch.Tensor | None = None) -> torch.Tensor:
    """Running sum of `[B, T, HV]` along T that restarts at every chunk; tokens of no chunk keep their own value."""
    rows, valid = chunk_rows(steps.shape[1], chunk_size, cu_seqlens)
    sums = torch.where(valid[..., None], steps[:, rows], 0).cumsum(2)
    out = steps.clone()
    out[:, rows[valid]] = sums[:, valid]
    return out


def make_inputs(
    regime: str = "random",
    B: int = 1,
    T: int = 128,
    H: int = 2,
    HV: int | None = None,
    K: int = 128,
    *,
    chunk_size: int = 64,
    cu_seqlens: list[int] | None = None,
    dtype: torch.dtype = torch.float32,
    gate_dtype: torch.dtype = torch.float32,
    with_g: bool = True,
    with_beta: bool = True,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> Inputs:
    """Build one regime's inputs. `HV=None` means H. Packed inputs take `cu_seqlens` as a list (B must be 1)."""
    HV = H if HV is None else HV
    keys, decay, strength = REGIMES[regime]
    gen = torch.Generator().manual_seed(seed)
    k = _keys(keys, (B, T, H, K), gen)
    if decay is None:
        step = -0.1 * F.softplus(torch.randn(B, T, HV, generator=gen))
    elif decay == "0 or -5":
        step = -5.0 * (torch.rand(B, T, HV, generator=gen) < 0.5)
    elif decay == "-316..0":
        step = -316 * torch.rand(B, T, HV, generator=gen) - 1e-4
    else:
        step = torch.full((B, T, HV), float(decay))
    if strength is None:
        beta = torch.sigmoid(torch.randn(B, T, HV, generator=gen))
    elif strength == "1..2":
        beta = 1 + torch.rand(B, T, HV, generator=gen)
    else:
        beta = torch.full((B, T, HV), float(strength))
    offsets = None if cu_seqlens is None else torch.tensor(cu_seqlens, dtype=torch.int64)
    g = chunk_cumsum(step, chunk_size, offsets)
    return Inputs(
        k=k.to(device, dtype),
        g=g.to(device, gate_dtype) if with_g else None,
        beta=beta.to(device, gate_dtype) if with_beta else None,
        cu_seqlens=None if offsets is None else offsets.to(device),
        chunk_size=chunk_size,
    )
