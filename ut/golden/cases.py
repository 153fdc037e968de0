"""Golden inputs: made from integers alone, so that every machine and every torch version makes the same bits.

A hash of the position gives small integers; keys, gates and betas are those times powers of two, exact in their types.
"""
from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

CHUNK = 64
K = 128


@dataclass(frozen=True)
class Case:
    """keys: noise | mixed (a common key plus noise) | repeated; step: decay a token, None varies; likewise beta."""

    keys: str
    step: float | None
    beta: float | None
    T: int = 128
    H: int = 1
    HV: int = 2
    dtype: torch.dtype = torch.bfloat16
    seed: int = 0
    offsets: tuple[int, ...] | None = None


CASES = {
    "random": Case("noise", None, None),
    "random_fp16": Case("noise", None, None, dtype=torch.float16, seed=1),
    "random_fp32": Case("noise", None, None, dtype=torch.float32, seed=2),
    "tail": Case("noise", None, None, T=100, seed=3),
    "packed": Case("noise", None, None, T=160, HV=1, seed=4, offsets=(0, 64, 64, 97, 160)),
    "mixed": Case("mixed", 0.0, 1.0, seed=5),
    "repeated": Case("repeated", -(2.0**-10), 0.8359375, seed=6),
    "repeated_fp32": Case("repeated", -(2.0**-10), 0.8359375, dtype=torch.float32, seed=6),
    "repeated_beta2": Case("repeated", 0.0, 2.0, seed=7),
    "steep": Case("noise", -20.0, None, seed=8),
}
CORRELATED = ("mixed", "repeated", "repeated_fp32", "repeated_beta2")


def integers(shape: tuple[int, ...], seed: int, bits: int) -> torch.Tensor:
    """int64 in [0, 2^bits): a mixing of (seed, position) that never leaves 60 bits."""
    count = 1
    for size in shape:
        count *= size
    x = (torch.arange(count, dtype=torch.int64) * 0x9E3779B1 + (seed + 1) * 0x85EBCA6B) & 0xFFFFFFFF
    for _ in range(3):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return ((x ^ (x >> 16)) >> (32 - bits)).view(shape)


def bell(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Integers in [-128, 124], near normal: a sum of four uniform ones. A key of 128 has a norm near 2^9 x 0.82."""
    return sum(integers(shape, 16 * seed + i, 6) - 32 for i in range(4))


def make(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """(k, g, beta, cu_seqlens) on the CPU; g is cumulative inside the chunk, in natural log."""
    noise = bell((1, case.T, case.H, K), 4 * case.seed)
    common = bell((1, 1, case.H, K), 4 * case.seed + 1).expand_as(noise)
    keys = {"noise": noise, "mixed": 3 * common + noise, "repeated": common}[case.keys]
    k = (keys.double() * (2.0**-11 if case.keys == "mixed" else 2.0**-9)).to(case.dtype)
    if case.step is None:
        step = integers((1, case.T, case.HV), 4 * case.seed + 2, 8).double() * -(2.0**-11)
    else:
        step = torch.full((1, case.T, case.HV), case.step, dtype=torch.float64)
    if case.beta is None:
        beta = (integers((1, case.T, case.HV), 4 * case.seed + 3, 8).double() + 1) * 2.0**-8
    else:
        beta = torch.full((1, case.T, case.HV), case.beta, dtype=torch.float64)
    g = torch.empty_like(step)
    offsets = case.offsets or (0, case.T)
    for start, end in zip(offsets, offsets[1:], strict=False):
        for first in range(start, end, CHUNK):
            last = min(first + CHUNK, end)
            g[:, first:last] = step[:, first:last].cumsum(1)
    cu_seqlens = None if case.offsets is None else torch.tensor(case.offsets, dtype=torch.int64)
    return k.contiguous(), g.float(), beta.float(), cu_seqlens


def digest(*tensors: torch.Tensor) -> str:
    """SHA-256 of the bytes of the tensors, in order."""
    sha = hashlib.sha256()
    for x in tensors:
        sha.update(bytes(x.detach().cpu().contiguous().view(torch.uint8).flatten().tolist()))
    return sha.hexdigest()
