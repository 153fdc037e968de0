"""The fused kernel for any Triton target: CUDA, and the interpreter on the CPU. How it is launched is in portable.py.

One program makes one chunk of one value head, with WARPS warps: one_warp.py or four_warps.py. Here is where the chunk
lies, and the rows that belong to none.
"""
from __future__ import annotations

import triton
import triton.language as tl

from .four_warps import chunk_by_four_warps
from .one_warp import chunk_by_one_warp
from .shared import chunk_place


@triton.jit(do_not_specialize=["T", "NT", "N", "g_stride_b", "beta_stride_b"])
def fused_kkt_solve_kernel(
    k, g, beta, out, cu_seqlens, chunk_indices, T, NT, N,
    k_stride_b, k_stride_h, g_stride_b, g_stride_h, beta_stride_b, beta_stride_h, out_stride_b, out_stride_h,
    k_stride_t: tl.constexpr, g_stride_t: tl.constexpr, beta_stride_t: tl.constexpr, out_stride_t: tl.constexpr,
    H: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
    HAS_G: tl.constexpr, HAS_BETA: tl.constexpr, PACKED: tl.constexpr, WHOLE: tl.constexpr,
    KEY_PRECISION: tl.constexpr, SPLIT: tl.constexpr, PTX: tl.constexpr, INTERPRETED: tl.constexpr,
    WARPS: tl.constexpr,
):
    i_t = tl.program_id(0) // HV
    i_hv = tl.program_id(0) % HV  # heads fastest: neighbours read the same rows of k
    i_b = tl.program_id(1).to(tl.int64)
    first, n_rows = chunk_place(cu_seqlens, chunk_indices, i_t, T, BT, PACKED)
    p_k = k + i_b * k_stride_b + first * k_stride_t + (i_hv // (HV // H)).to(tl.int64) * k_stride_h
    p_g = g
    p_beta = beta
    if HAS_G:
        p_g = g + i_b * g_stride_b + first * g_stride_t + i_hv.to(tl.int64) * g_stride_h
    if HAS_BETA:
        p_beta = beta + i_b * beta_stride_b + first * beta_stride_t + i_hv.to(tl.int64) * beta_stride_h
    p_head = out + i_b * out_stride_b + i_hv.to(tl.int64) * out_stride_h
    p_out = p_head + first * out_stride_t

    if WARPS == 1:
        chunk_by_one_warp(p_k, p_g, p_beta, p_out, n_rows, k_stride_t, g_stride_t, beta_stride_t, out_stride_t,
                          K, BT, BK, HAS_G, HAS_BETA, WHOLE, KEY_PRECISION, SPLIT, PTX, INTERPRETED)
    else:
        chunk_by_four_warps(p_k, p_g, p_beta, p_out, n_rows, k_stride_t, g_stride_t, beta_stride_t, out_stride_t,
                            K, BK, HAS_G, HAS_BETA, WHOLE, KEY_PRECISION, SPLIT, PTX, INTERPRETED)

    if PACKED:  # rows after the last sequence: shared among the programs of this head
        o_row = tl.arange(0, 16)
        past = tl.load(cu_seqlens + N).to(tl.int64)
        for row in range(past + i_t * 16, T, NT * 16):
            p_x = p_head + row * out_stride_t + o_row[:, None] * out_stride_t + tl.arange(0, BT)[None, :]
            tl.store(p_x, tl.zeros([16, BT], p_x.dtype.element_ty), mask=(row + o_row < T)[:, None])
