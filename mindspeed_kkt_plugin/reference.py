"""The operator in plain torch: gated KK^T, forward substitution, and both, in float64 or float32.

The float64 version is the oracle of every test; the float32 version is the operator's last resort where no Triton
kernel can run. Works on any torch device. No matrix inverse from a library: LU with pivoting loses every digit on
strongly correlated keys, forward substitution does not.
"""
from __future__ import annotations

import torch

from .varlen import chunk_rows

GATE_CLAMP = 50.0  # the exponent's bound in MindSpeed's kernel; e^-50 is invisible beside the unit diagonal


def _take(x: torch.Tensor, rows: torch.Tensor, valid: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`[B, T, ...]` to `[B, NT, BT, ...]`, zeros past the tails."""
    return torch.where(valid.view(valid.shape + (1,) * (x.dim() - 2)), x[:, rows].to(dtype), 0)


def _put(chunks: torch.Tensor, length: int, rows: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """`[B, NT, BT, ...]` back to `[B, T, ...]`; tokens of no chunk are zero."""
    out = chunks.new_zeros((chunks.shape[0], length) + chunks.shape[3:])
    out[:, rows[valid]] = chunks[:, valid]
    return out


def _gated_product(k: torch.Tensor, g: torch.Tensor | None, beta: torch.Tensor | None) -> torch.Tensor:
    """L of every chunk, `[B, NT, HV, BT, BT]`, from `[B, NT, BT, ...]` chunks."""
    k = k.movedim(3, 2)
    out = k @ k.transpose(-1, -2)
    heads = next((x.shape[3] for x in (g, beta) if x is not None), out.shape[2])
    out = out.repeat_interleave(heads // out.shape[2], dim=2)
    size = out.shape[-1]
    lower = torch.ones(size, size, dtype=torch.bool, device=out.device).tril(-1)
    if g is not None:
        g = g.transpose(2, 3)
        gap = (g[..., :, None] - g[..., None, :]).clamp(-GATE_CLAMP, GATE_CLAMP)
        out = out * torch.exp(torch.where(lower, gap, 0))  # mask first: above the diagonal the gap is positive
    if beta is not None:
        out = out * beta.transpose(2, 3)[..., None]
    return torch.where(lower, out, 0)


def _substitute(low: torch.Tensor) -> torch.Tensor:
    """(I + L)^-1 of `[..., BT, BT]` strictly lower L, row by row, all chunks at once."""
    out = torch.zeros_like(low)
    for i in range(low.shape[-1]):
        if i:
            out[..., i, :i] = -(low[..., i, None, :i] @ out[..., :i, :i]).squeeze(-2)
        out[..., i, i] = 1
    return out


def _heads_last(x: torch.Tensor | None, head_first: bool) -> torch.Tensor | None:
    return x.transpose(1, 2) if x is not None and head_first else x


@torch.no_grad()
def kkt(
    k: torch.Tensor,
    g: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    chunk_size: int = 64,
    head_first: bool = False,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """L[i, j] = beta[i] exp(clamp(g[i] - g[j], -50, 50)) <k_i, k_j> for j < i of one chunk, else 0.

    k `[B, T, H, K]`, g and beta `[B, T, HV]` (head first: axes 1 and 2 swapped). Returns `[B, T, HV, chunk_size]`
    in `dtype`, which is also the precision of every step; rows outside every sequence are zero.
    """
    k, g, beta = (_heads_last(x, head_first) for x in (k, g, beta))
    rows, valid = chunk_rows(k.shape[1], chunk_size, cu_seqlens, k.device)
    with torch.autocast(k.device.type, enabled=False):  # which would multiply float32 in 16 bits
        low = _gated_product(*(None if x is None else _take(x, rows, valid, dtype) for x in (k, g, beta)))
    return _put(low.movedim(2, 3), k.shape[1], rows, valid)


@torch.no_grad()
def solve(
    A: torch.Tensor, cu_seqlens: torch.Tensor | None = None, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """(I + L)^-1 per chunk by forward substitution, L the strict lower triangle of A `[B, T, HV, BT]`."""
    rows, valid = chunk_rows(A.shape[1], A.shape[-1], cu_seqlens, A.device)
    low = _take(A, rows, valid, dtype).movedim(3, 2).tril(-1)
    with torch.autocast(A.device.type, enabled=False):
        out = _substitute(low)
    return _put(out.movedim(2, 3), A.shape[1], rows, valid)


@torch.no_grad()
def kkt_solve(
    k: torch.Tensor,
    g: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    chunk_size: int = 64,
    *,
    head_first: bool = False,
    output_head_first: bool = False,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """The whole operator: `solve(kkt(...))`, `[B, T, HV, chunk_size]` (or head first) in `dtype`."""
    out = solve(kkt(k, g, beta, cu_seqlens, chunk_size, head_first, dtype), cu_seqlens, dtype)
    return _heads_last(out, output_head_first)
