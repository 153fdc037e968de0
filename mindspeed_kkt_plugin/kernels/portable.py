"""Planning the portable fused kernel: CUDA, and Triton's interpreter on the CPU. Not meant for Ascend.

The kernel itself is in portable_kernel.py. Nothing here touches a device.
"""
from __future__ import annotations

from functools import lru_cache

import torch
import triton

from .launch import Launch
from .portable_kernel import fused_kkt_solve_kernel
from .shared import INTERPRETED, last_axis_dense

__all__ = ["INTERPRETED", "plan", "refuse"]

MAX_BATCH = 65535  # programs of a CUDA grid's second axis
FEW = 2  # chunks a multiprocessor up to which four warps make one of 64: faster there, slower beyond
STAGES = 3  # of the loop over the columns of k


def refuse(k, g, beta, cu_seqlens, chunk_indices, **options) -> str | None:
    """Why this kernel does not take a checked call, or None."""
    if k.shape[0] > MAX_BATCH:
        return f"the batch is {k.shape[0]}; one grid takes at most {MAX_BATCH}"
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
    """The result, still unwritten, and the one launch that writes all of it. Arguments as in op.py.

    num_cores: multiprocessors; beside the number of chunks it decides how many warps make one (see FEW).
    precision is "ieee" (products accurate to fp32, however made); this kernel has no faster mode.
    """
    if precision != "ieee":
        raise ValueError(f"precision is {precision!r}; the portable kernel takes 'ieee' only")
    k = last_axis_dense(k)
    layout = (*((2, 1) if head_first else (1, 2)), output_head_first)
    NT = -1 if cu_seqlens is None else chunk_indices.shape[0]
    shape, grid, scalars, constants = _prepare(
        k.shape, k.stride(), *((None, None) if x is None else (x.shape, x.stride()) for x in (g, beta)), layout,
        chunk_size, NT, k.device, k.dtype, output_dtype, num_cores)
    if NT == 0:  # packed, and every sequence is empty
        return torch.zeros(shape, dtype=output_dtype, device=k.device), []
    out = torch.empty(shape, dtype=output_dtype, device=k.device)
    N = 0 if cu_seqlens is None else cu_seqlens.shape[0] - 1
    args = dict(k=k, g=g, beta=beta, out=out, cu_seqlens=cu_seqlens, chunk_indices=chunk_indices, N=N, **scalars)
    options = dict(num_warps=constants["WARPS"], num_stages=STAGES)
    return out, [Launch("fused_kkt_solve", fused_kkt_solve_kernel, grid, args, constants, options)]


@lru_cache(maxsize=256)
def _prepare(k_shape, k_strides, g_form, beta_form, layout, chunk_size, NT, device, key_dtype, output_dtype,
             num_cores):
    """What a launch needs besides tensors: result shape, grid, run-time numbers, constants.

    Remembered, because a model calls with the same shapes in every layer and small calls are bound by the host.
    layout: axes of token and head in the inputs, and whether the result is head-first. NT: -1 for fixed length.
    """
    t, h, output_head_first = layout
    B, T, H, K = k_shape[0], k_shape[t], k_shape[h], k_shape[3]
    HV = next((form[0][h] for form in (g_form, beta_form) if form[0] is not None), H)
    shape = (B, HV, T, chunk_size) if output_head_first else (B, T, HV, chunk_size)
    packed = NT >= 0
    NT = NT if packed else triton.cdiv(T, chunk_size)
    out_strides = (T * HV * chunk_size, *((chunk_size, T * chunk_size) if output_head_first else
                                          (HV * chunk_size, chunk_size)))
    scalars, constants = dict(T=T, NT=NT), {}
    for name, strides in (("k", k_strides), ("g", g_form[1]), ("beta", beta_form[1])):
        strides = (0, 0, 0, 0) if strides is None else strides
        scalars |= {f"{name}_stride_b": strides[0], f"{name}_stride_h": strides[h]}
        constants[f"{name}_stride_t"] = strides[t]
    scalars |= dict(out_stride_b=out_strides[0], out_stride_h=out_strides[2])
    gpu = not INTERPRETED and device.type == "cuda"
    nvidia = gpu and torch.version.hip is None
    few = nvidia and chunk_size == 64 and NT * HV * B <= FEW * num_cores
    exact_keys = key_dtype == torch.float32
    constants |= dict(
        out_stride_t=out_strides[1],  # token strides as constants turn addresses into immediates; none depends on T
        H=H, HV=HV, K=K, BT=chunk_size, BK=min(32 if exact_keys else 64, max(16, triton.next_power_of_2(K))),
        HAS_G=g_form[0] is not None, HAS_BETA=beta_form[0] is not None,
        PACKED=packed, WHOLE=not packed and T % chunk_size == 0,
        KEY_PRECISION="tf32x3" if gpu and exact_keys else "ieee",
        SPLIT=gpu,  # elsewhere (the interpreter, unknown targets) Triton multiplies in fp32
        PTX=nvidia, INTERPRETED=INTERPRETED, WARPS=4 if few else 1,
    )
    return shape, (NT * HV, B), scalars, constants
