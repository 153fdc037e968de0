"""The two-call chain with MindSpeed's signatures: the baseline of the fused operator, and its fallback.

Kernels are in kernels/unfused_kkt.py and kernels/unfused_solve.py. Importing this file imports Triton.
"""
from __future__ import annotations

import torch

from . import checks
from .kernels.launch import Launch
from .kernels.shared import INTERPRETED
from .kernels.unfused_kkt import launch_kkt
from .kernels.unfused_solve import launch_solve
from .paths import num_cores as cores_of
from .paths import run_launches
from .varlen import prepare_chunk_indices

__all__ = ["INTERPRETED", "chunk_scaled_dot_kkt_fwd", "plan", "refuse", "solve_tril"]


def chunk_scaled_dot_kkt_fwd(
    k: torch.Tensor,
    g: torch.Tensor | None = None,
    gk: None = None,
    beta: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    chunk_size: int = 64,
    output_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """L[i, j] = beta[i] exp(clamp(g[i] - g[j], -50, 50)) <k_i, k_j> for j < i of one chunk, else 0.

    k `[B, T, H, K]`, g and beta `[B, T, HV]`; limits and errors as for the fused operator. gk, MindSpeed's gate per
    channel, must be None. Returns `[B, T, HV, chunk_size]` in `output_dtype`; rows outside every sequence are 0.
    """
    if gk is not None:
        raise ValueError("gk (a gate per channel) is not supported; pass None")
    checks.check_arguments(k, g, beta, cu_seqlens, chunk_size, output_dtype, None, False, False)
    heads = next((x.shape[2] for x in (g, beta) if x is not None), k.shape[2])
    out = _new((*k.shape[:2], heads, chunk_size), output_dtype, k.device, cu_seqlens)
    chunk_indices = _chunks(cu_seqlens, k.shape[1], chunk_size)
    if out.numel() and (chunk_indices is None or chunk_indices.shape[0]):
        k, g, beta = (checks.as_memory(x) for x in (k, g, beta))
        run_launches([launch_kkt(k, g, beta, _dense(cu_seqlens), chunk_indices, out, head_first=False,
                                 num_cores=cores_of(k.device))], k.device)
    return out


def solve_tril(
    A: torch.Tensor, cu_seqlens: torch.Tensor | None = None, output_dtype: torch.dtype | None = torch.float
) -> torch.Tensor:
    """(I + L)^-1 per chunk, L the strict lower triangle of A `[B, T, HV, BT]`, BT in 16, 32, 64; the rest is ignored.

    Computed in fp32. `output_dtype=None` means A's. Rows outside every sequence are 0.
    """
    checks.check_matrix(A, cu_seqlens, output_dtype)
    out = _new(A.shape, output_dtype or A.dtype, A.device, cu_seqlens)
    chunk_indices = _chunks(cu_seqlens, A.shape[1], A.shape[3])
    if out.numel() and (chunk_indices is None or chunk_indices.shape[0]):
        run_launches(launch_solve(checks.as_memory(A).contiguous(), _dense(cu_seqlens), chunk_indices, out,
                                  num_cores=cores_of(A.device), precision="ieee"), A.device)
    return out


def refuse(k, g, beta, cu_seqlens, chunk_indices, **options) -> str | None:
    """Why the chain does not take a checked call. It takes all of them."""
    return None


def plan(
    k: torch.Tensor,
    g: torch.Tensor | None,
    beta: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    chunk_indices: torch.Tensor | None,
    *,
    chunk_size: int,
    output_dtype: torch.dtype,
    head_first: bool,
    output_head_first: bool,
    num_cores: int,
    precision: str = "ieee",
) -> tuple[torch.Tensor, list[Launch]]:
    """The result, still unwritten, and the launches that write it. Arguments as in op.py."""
    B, T, H = (k.shape[i] for i in ((0, 2, 1) if head_first else (0, 1, 2)))
    HV = next((x.shape[1 if head_first else 2] for x in (g, beta) if x is not None), H)
    shape = (B, T, HV, chunk_size)
    out = _new(shape, output_dtype, k.device, cu_seqlens)
    launches = []
    if cu_seqlens is None or chunk_indices.shape[0]:
        A = torch.empty(shape, dtype=torch.float32, device=k.device)
        launches = [launch_kkt(k, g, beta, cu_seqlens, chunk_indices, A, head_first=head_first, num_cores=num_cores),
                    *launch_solve(A, cu_seqlens, chunk_indices, out, num_cores=num_cores, precision=precision)]
    return out.transpose(1, 2) if output_head_first else out, launches


def _new(shape, dtype, device, cu_seqlens) -> torch.Tensor:
    """Packed tokens may belong to no sequence, and their rows must be zero; otherwise the kernels write every row."""
    return (torch.empty if cu_seqlens is None else torch.zeros)(shape, dtype=dtype, device=device)


def _dense(cu_seqlens: torch.Tensor | None) -> torch.Tensor | None:
    return None if cu_seqlens is None else cu_seqlens.contiguous()


def _chunks(cu_seqlens, T: int, chunk_size: int) -> torch.Tensor | None:
    if cu_seqlens is None:
        return None
    if checks.values_are_checked(cu_seqlens.device):
        checks.check_values(cu_seqlens, None, T, chunk_size)
    return prepare_chunk_indices(cu_seqlens, chunk_size)
