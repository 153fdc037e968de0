"""The fused kernel for any Triton target: CUDA, and the interpreter on the CPU. How it is launched is in portable.py.

One program of one warp makes one chunk of one value head, with every tile 16 x 16 and in registers from the product
of the keys to the finished rows. How it got here, with times, is in docs/en/gpu-kernel-log.md.
"""
from __future__ import annotations

import triton
import triton.language as tl

from .products import decay, mul_transposed
from .shared import chunk_place, round_for


@triton.jit
def _keys(p_k, i: tl.constexpr, i_k, stride: tl.constexpr, n_rows, K: tl.constexpr, BK: tl.constexpr,
          WHOLE: tl.constexpr, INTERPRETED: tl.constexpr):
    """Rows 16 i to 16 i + 15 of the chunk, columns i_k to i_k + BK; zeros where there is none."""
    o_t = i * 16 + tl.arange(0, 16)
    o_k = i_k + tl.arange(0, BK)
    p = p_k + o_t[:, None] * stride + o_k[None, :]
    if WHOLE and K % BK == 0:
        b_k = tl.load(p)
    elif K % BK == 0:
        b_k = tl.load(p, mask=(o_t < n_rows)[:, None], other=0.0)
    else:
        b_k = tl.load(p, mask=(o_t < n_rows)[:, None] & (o_k < K)[None, :], other=0.0)
    if INTERPRETED:  # Triton 3.2's interpreter multiplies the bit patterns of bf16
        b_k = b_k.to(tl.float32)
    return b_k


@triton.jit
def _gates(p_g, i: tl.constexpr, stride: tl.constexpr, n_rows, HAS: tl.constexpr, WHOLE: tl.constexpr):
    o_t = i * 16 + tl.arange(0, 16)
    b_g = tl.zeros([16], tl.float32)  # stays, and is never read, without g
    if HAS and WHOLE:
        b_g = tl.load(p_g + o_t * stride).to(tl.float32)
    elif HAS:  # past the end the last gate again, so that no difference there is large
        b_g = tl.load(p_g + tl.minimum(o_t, n_rows - 1) * stride).to(tl.float32)
    return b_g


@triton.jit
def _betas(p_beta, i: tl.constexpr, stride: tl.constexpr, n_rows, HAS: tl.constexpr, WHOLE: tl.constexpr):
    o_t = i * 16 + tl.arange(0, 16)
    b_beta = tl.zeros([16], tl.float32)  # stays, and is never read, without beta
    if HAS and WHOLE:
        b_beta = tl.load(p_beta + o_t * stride).to(tl.float32)
    elif HAS:
        b_beta = tl.load(p_beta + o_t * stride, mask=o_t < n_rows, other=0.0).to(tl.float32)
    return b_beta


@triton.jit
def _below(b_s, b_gi, b_gj, b_beta, HAS_G: tl.constexpr, HAS_BETA: tl.constexpr, PTX: tl.constexpr):
    """-L of a tile below the diagonal, from the product of its keys."""
    if HAS_G:
        b_s *= decay(b_gi[:, None] - b_gj[None, :], PTX)
    if HAS_BETA:
        b_s *= b_beta[:, None]
    return -b_s


@triton.jit
def _first(b_s, b_g, b_beta, HAS_G: tl.constexpr, HAS_BETA: tl.constexpr, PTX: tl.constexpr):
    """Of a tile on the diagonal: the inverse of its 2 x 2 leaves, and -L transposed.

    The product of the keys is symmetric, so one pass makes -L below its diagonal and the transpose of it above.
    """
    o = tl.arange(0, 16)
    lower = o[:, None] > o[None, :]
    gap = o[:, None] ^ o[None, :]
    if HAS_G:
        b_gap = b_g[:, None] - b_g[None, :]
        b_s *= decay(tl.where(lower, b_gap, -b_gap), PTX)
    if HAS_BETA:
        b_s *= tl.where(lower, b_beta[:, None], b_beta[None, :])
    b_leaf = tl.where(gap == 1, -b_s, tl.where(gap == 0, 1.0, 0.0))
    return tl.where(lower | (gap == 0), b_leaf, 0.0), tl.where(lower, 0.0, -b_s)


@triton.jit
def _double(b_x, b_u, s, SPLIT: tl.constexpr, PTX: tl.constexpr, INTERPRETED: tl.constexpr):
    """From inverse blocks of 2^s rows to 2^(s+1): X - X L X, L the square between two blocks.

    Blocks, not powers of L: on correlated keys powers grow far beyond the result and cancel.
    """
    o = tl.arange(0, 16)
    between = ((o[:, None] ^ o[None, :]) >> s) == 1
    b_p = mul_transposed(tl.zeros([16, 16], tl.float32), b_x, tl.where(between, b_u, 0.0), SPLIT, PTX, INTERPRETED)
    return mul_transposed(b_x, b_p, tl.trans(b_x), SPLIT, PTX, INTERPRETED)


@triton.jit
def _put(p_out, i: tl.constexpr, b_row, stride: tl.constexpr, n_rows, WHOLE: tl.constexpr):
    """16 finished rows of the chunk, whole, so that memory is written in full lines."""
    o_t = i * 16 + tl.arange(0, 16)
    p = p_out + o_t[:, None] * stride + tl.arange(0, b_row.shape[1])[None, :]
    if WHOLE:
        tl.store(p, b_row)
    else:
        tl.store(p, b_row, mask=(o_t < n_rows)[:, None])


@triton.jit
def _beside(b_0, b_1):
    return tl.reshape(tl.permute(tl.join(b_0, b_1), (0, 2, 1)), (b_0.shape[0], 2 * b_0.shape[1]))


@triton.jit(do_not_specialize=["T", "NT", "N", "g_stride_b", "beta_stride_b"])
def fused_kkt_solve_kernel(
    k, g, beta, out, cu_seqlens, chunk_indices, T, NT, N,
    k_stride_b, k_stride_h, g_stride_b, g_stride_h, beta_stride_b, beta_stride_h, out_stride_b, out_stride_h,
    k_stride_t: tl.constexpr, g_stride_t: tl.constexpr, beta_stride_t: tl.constexpr, out_stride_t: tl.constexpr,
    H: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
    HAS_G: tl.constexpr, HAS_BETA: tl.constexpr, PACKED: tl.constexpr, WHOLE: tl.constexpr,
    KEY_PRECISION: tl.constexpr, SPLIT: tl.constexpr, PTX: tl.constexpr, INTERPRETED: tl.constexpr,
):
    """Steps: key products of the lower tiles; gate and beta; tiles on the diagonal by doubling; the rest from them.

    X = (I - N)^-1 with N = -L, first of the two halves of the chunk, then between them: X_B N_BA X_A. y is x
    transposed, for products want their right factor transposed (see products.py); shuffles in the warp turn a tile.
    s_ij is the transpose of sum_k N_ik X_kj, k in the half of j: s_ij = sum_k Y_jk N_ik^T, X_ij = sum_k X_ik s_kj^T.
    """
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

    # Gates before keys: loading them after the products costs a second wait for memory, a fifth of the time.
    b_g0 = _gates(p_g, 0, g_stride_t, n_rows, HAS_G, WHOLE)
    b_beta0 = _betas(p_beta, 0, beta_stride_t, n_rows, HAS_BETA, WHOLE)
    b_zero = tl.zeros([16, 16], tl.float32)
    b_n00 = b_zero
    if BT > 16:
        b_g1 = _gates(p_g, 1, g_stride_t, n_rows, HAS_G, WHOLE)
        b_beta1 = _betas(p_beta, 1, beta_stride_t, n_rows, HAS_BETA, WHOLE)
        b_n10 = b_zero
        b_n11 = b_zero
    if BT > 32:
        b_g2 = _gates(p_g, 2, g_stride_t, n_rows, HAS_G, WHOLE)
        b_beta2 = _betas(p_beta, 2, beta_stride_t, n_rows, HAS_BETA, WHOLE)
        b_g3 = _gates(p_g, 3, g_stride_t, n_rows, HAS_G, WHOLE)
        b_beta3 = _betas(p_beta, 3, beta_stride_t, n_rows, HAS_BETA, WHOLE)
        b_n20 = b_zero
        b_n21 = b_zero
        b_n22 = b_zero
        b_n30 = b_zero
        b_n31 = b_zero
        b_n32 = b_zero
        b_n33 = b_zero
    for i_k in range(0, K, BK):
        b_k0 = _keys(p_k, 0, i_k, k_stride_t, n_rows, K, BK, WHOLE, INTERPRETED)
        b_n00 = tl.dot(b_k0, tl.trans(b_k0), b_n00, input_precision=KEY_PRECISION)
        if BT > 16:
            b_k1 = _keys(p_k, 1, i_k, k_stride_t, n_rows, K, BK, WHOLE, INTERPRETED)
            b_n10 = tl.dot(b_k1, tl.trans(b_k0), b_n10, input_precision=KEY_PRECISION)
            b_n11 = tl.dot(b_k1, tl.trans(b_k1), b_n11, input_precision=KEY_PRECISION)
        if BT > 32:
            b_k2 = _keys(p_k, 2, i_k, k_stride_t, n_rows, K, BK, WHOLE, INTERPRETED)
            b_k3 = _keys(p_k, 3, i_k, k_stride_t, n_rows, K, BK, WHOLE, INTERPRETED)
            b_n20 = tl.dot(b_k2, tl.trans(b_k0), b_n20, input_precision=KEY_PRECISION)
            b_n21 = tl.dot(b_k2, tl.trans(b_k1), b_n21, input_precision=KEY_PRECISION)
            b_n22 = tl.dot(b_k2, tl.trans(b_k2), b_n22, input_precision=KEY_PRECISION)
            b_n30 = tl.dot(b_k3, tl.trans(b_k0), b_n30, input_precision=KEY_PRECISION)
            b_n31 = tl.dot(b_k3, tl.trans(b_k1), b_n31, input_precision=KEY_PRECISION)
            b_n32 = tl.dot(b_k3, tl.trans(b_k2), b_n32, input_precision=KEY_PRECISION)
            b_n33 = tl.dot(b_k3, tl.trans(b_k3), b_n33, input_precision=KEY_PRECISION)

    b_x0, b_u0 = _first(b_n00, b_g0, b_beta0, HAS_G, HAS_BETA, PTX)
    if BT > 16:
        b_x1, b_u1 = _first(b_n11, b_g1, b_beta1, HAS_G, HAS_BETA, PTX)
    if BT > 32:
        b_x2, b_u2 = _first(b_n22, b_g2, b_beta2, HAS_G, HAS_BETA, PTX)
        b_x3, b_u3 = _first(b_n33, b_g3, b_beta3, HAS_G, HAS_BETA, PTX)
    for s in range(1, 4):  # a loop, not unrolled: as fast, and half the code to compile
        b_x0 = _double(b_x0, b_u0, s, SPLIT, PTX, INTERPRETED)
        if BT > 16:
            b_x1 = _double(b_x1, b_u1, s, SPLIT, PTX, INTERPRETED)
        if BT > 32:
            b_x2 = _double(b_x2, b_u2, s, SPLIT, PTX, INTERPRETED)
            b_x3 = _double(b_x3, b_u3, s, SPLIT, PTX, INTERPRETED)

    b_o0 = round_for(b_x0, p_out, INTERPRETED)
    b_none = round_for(b_zero, p_out, INTERPRETED)
    if BT == 16:
        _put(p_out, 0, b_o0, out_stride_t, n_rows, WHOLE)
    else:
        b_n10 = _below(b_n10, b_g1, b_g0, b_beta1, HAS_G, HAS_BETA, PTX)
        b_y0 = tl.trans(b_x0)
        b_s10 = mul_transposed(b_zero, b_y0, b_n10, SPLIT, PTX, INTERPRETED)
        b_x10 = mul_transposed(b_zero, b_x1, b_s10, SPLIT, PTX, INTERPRETED)
        b_o0 = _beside(b_o0, b_none)
        b_o1 = _beside(round_for(b_x10, p_out, INTERPRETED), round_for(b_x1, p_out, INTERPRETED))
        if BT == 32:
            _put(p_out, 0, b_o0, out_stride_t, n_rows, WHOLE)
            _put(p_out, 1, b_o1, out_stride_t, n_rows, WHOLE)
        else:
            b_none = _beside(b_none, b_none)
            _put(p_out, 0, _beside(b_o0, b_none), out_stride_t, n_rows, WHOLE)
            _put(p_out, 1, _beside(b_o1, b_none), out_stride_t, n_rows, WHOLE)
            b_y1 = tl.trans(b_x1)
            b_y01 = tl.trans(b_x10)
            b_n32 = _below(b_n32, b_g3, b_g2, b_beta3, HAS_G, HAS_BETA, PTX)
            b_s32 = mul_transposed(b_zero, tl.trans(b_x2), b_n32, SPLIT, PTX, INTERPRETED)
            b_x32 = mul_transposed(b_zero, b_x3, b_s32, SPLIT, PTX, INTERPRETED)
            b_n20 = _below(b_n20, b_g2, b_g0, b_beta2, HAS_G, HAS_BETA, PTX)
            b_n21 = _below(b_n21, b_g2, b_g1, b_beta2, HAS_G, HAS_BETA, PTX)
            b_n30 = _below(b_n30, b_g3, b_g0, b_beta3, HAS_G, HAS_BETA, PTX)
            b_n31 = _below(b_n31, b_g3, b_g1, b_beta3, HAS_G, HAS_BETA, PTX)
            b_s21 = mul_transposed(b_zero, b_y1, b_n21, SPLIT, PTX, INTERPRETED)
            b_s31 = mul_transposed(b_zero, b_y1, b_n31, SPLIT, PTX, INTERPRETED)
            b_s20 = mul_transposed(b_zero, b_y0, b_n20, SPLIT, PTX, INTERPRETED)
            b_s30 = mul_transposed(b_zero, b_y0, b_n30, SPLIT, PTX, INTERPRETED)
            b_s20 = mul_transposed(b_s20, b_y01, b_n21, SPLIT, PTX, INTERPRETED)
            b_s30 = mul_transposed(b_s30, b_y01, b_n31, SPLIT, PTX, INTERPRETED)
            b_x21 = mul_transposed(b_zero, b_x2, b_s21, SPLIT, PTX, INTERPRETED)
            b_x20 = mul_transposed(b_zero, b_x2, b_s20, SPLIT, PTX, INTERPRETED)
            b_o2 = _beside(round_for(b_x2, p_out, INTERPRETED), round_for(b_zero, p_out, INTERPRETED))
            b_o20 = _beside(round_for(b_x20, p_out, INTERPRETED), round_for(b_x21, p_out, INTERPRETED))
            _put(p_out, 2, _beside(b_o20, b_o2), out_stride_t, n_rows, WHOLE)
            b_x31 = mul_transposed(b_zero, b_x32, b_s21, SPLIT, PTX, INTERPRETED)
            b_x30 = mul_transposed(b_zero, b_x32, b_s20, SPLIT, PTX, INTERPRETED)
            b_x31 = mul_transposed(b_x31, b_x3, b_s31, SPLIT, PTX, INTERPRETED)
            b_x30 = mul_transposed(b_x30, b_x3, b_s30, SPLIT, PTX, INTERPRETED)
            b_o3 = _beside(round_for(b_x32, p_out, INTERPRETED), round_for(b_x3, p_out, INTERPRETED))
            b_o30 = _beside(round_for(b_x30, p_out, INTERPRETED), round_for(b_x31, p_out, INTERPRETED))
            _put(p_out, 3, _beside(b_o30, b_o3), out_stride_t, n_rows, WHOLE)

    if PACKED:  # rows after the last sequence: shared among the programs of this head
        o_row = tl.arange(0, 16)
        past = tl.load(cu_seqlens + N).to(tl.int64)
        for row in range(past + i_t * 16, T, NT * 16):
            p_x = p_head + row * out_stride_t + o_row[:, None] * out_stride_t + tl.arange(0, BT)[None, :]
            tl.store(p_x, tl.zeros([16, BT], p_x.dtype.element_ty), mask=(row + o_row < T)[:, None])
