"""A chunk of 16, 32 or 64 made by one warp, with every tile 16 x 16 and in registers from the product of the keys to
the finished rows: the least instructions a chunk, and no barrier. How it got here, with times, is in
docs/en/gpu-kernel-log.md.
"""
from __future__ import annotations

import triton
import triton.language as tl

from .products import mul_transposed, mul_two_transposed
from .shared import round_for
from .tiles import below, betas, double, gates, keys, leaves, put


@triton.jit
def _beside(b_0, b_1):
    return tl.reshape(tl.permute(tl.join(b_0, b_1), (0, 2, 1)), (b_0.shape[0], 2 * b_0.shape[1]))


@triton.jit
def chunk_by_one_warp(
    p_k, p_g, p_beta, p_out, n_rows,
    k_stride: tl.constexpr, g_stride: tl.constexpr, beta_stride: tl.constexpr, out_stride: tl.constexpr,
    K: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, HAS_G: tl.constexpr, HAS_BETA: tl.constexpr,
    WHOLE: tl.constexpr, KEY_PRECISION: tl.constexpr, SPLIT: tl.constexpr, PTX: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Steps: key products of the lower tiles; gate and beta; tiles on the diagonal by doubling; the rest from them.

    X = (I - N)^-1 with N = -L, first of the two halves of the chunk, then between them: X_B N_BA X_A. y is x
    transposed, for products want their right factor transposed (see products.py); shuffles in the warp turn a tile.
    s_ij is the transpose of sum_k N_ik X_kj, k in the half of j: s_ij = sum_k Y_jk N_ik^T, X_ij = sum_k X_ik s_kj^T.
    """
    o_0 = tl.arange(0, 16)
    o_1 = o_0 + 16
    o_2 = o_0 + 32
    o_3 = o_0 + 48
    o_c = tl.arange(0, BT)[None, :]
    # Gates before keys: loading them after the products costs a second wait for memory, a fifth of the time.
    b_g0 = gates(p_g, o_0, g_stride, n_rows, HAS_G, WHOLE)
    b_beta0 = betas(p_beta, o_0, beta_stride, n_rows, HAS_BETA, WHOLE)
    b_zero = tl.zeros([16, 16], tl.float32)
    b_n00 = b_zero
    if BT > 16:
        b_g1 = gates(p_g, o_1, g_stride, n_rows, HAS_G, WHOLE)
        b_beta1 = betas(p_beta, o_1, beta_stride, n_rows, HAS_BETA, WHOLE)
        b_n10 = b_zero
        b_n11 = b_zero
    if BT > 32:
        b_g2 = gates(p_g, o_2, g_stride, n_rows, HAS_G, WHOLE)
        b_beta2 = betas(p_beta, o_2, beta_stride, n_rows, HAS_BETA, WHOLE)
        b_g3 = gates(p_g, o_3, g_stride, n_rows, HAS_G, WHOLE)
        b_beta3 = betas(p_beta, o_3, beta_stride, n_rows, HAS_BETA, WHOLE)
        b_n20 = b_zero
        b_n21 = b_zero
        b_n22 = b_zero
        b_n30 = b_zero
        b_n31 = b_zero
        b_n32 = b_zero
        b_n33 = b_zero
    for i_k in range(0, K, BK):
        b_k0 = keys(p_k, o_0, i_k, k_stride, n_rows, K, BK, WHOLE, INTERPRETED)
        b_n00 = tl.dot(b_k0, tl.trans(b_k0), b_n00, input_precision=KEY_PRECISION)
        if BT > 16:
            b_k1 = keys(p_k, o_1, i_k, k_stride, n_rows, K, BK, WHOLE, INTERPRETED)
            b_n10 = tl.dot(b_k1, tl.trans(b_k0), b_n10, input_precision=KEY_PRECISION)
            b_n11 = tl.dot(b_k1, tl.trans(b_k1), b_n11, input_precision=KEY_PRECISION)
        if BT > 32:
            b_k2 = keys(p_k, o_2, i_k, k_stride, n_rows, K, BK, WHOLE, INTERPRETED)
            b_k3 = keys(p_k, o_3, i_k, k_stride, n_rows, K, BK, WHOLE, INTERPRETED)
            b_n20 = tl.dot(b_k2, tl.trans(b_k0), b_n20, input_precision=KEY_PRECISION)
            b_n21 = tl.dot(b_k2, tl.trans(b_k1), b_n21, input_precision=KEY_PRECISION)
            b_n22 = tl.dot(b_k2, tl.trans(b_k2), b_n22, input_precision=KEY_PRECISION)
            b_n30 = tl.dot(b_k3, tl.trans(b_k0), b_n30, input_precision=KEY_PRECISION)
            b_n31 = tl.dot(b_k3, tl.trans(b_k1), b_n31, input_precision=KEY_PRECISION)
            b_n32 = tl.dot(b_k3, tl.trans(b_k2), b_n32, input_precision=KEY_PRECISION)
            b_n33 = tl.dot(b_k3, tl.trans(b_k3), b_n33, input_precision=KEY_PRECISION)

    b_x0, b_u0 = leaves(b_n00, b_g0, b_beta0, HAS_G, HAS_BETA, PTX)
    if BT > 16:
        b_x1, b_u1 = leaves(b_n11, b_g1, b_beta1, HAS_G, HAS_BETA, PTX)
    if BT > 32:
        b_x2, b_u2 = leaves(b_n22, b_g2, b_beta2, HAS_G, HAS_BETA, PTX)
        b_x3, b_u3 = leaves(b_n33, b_g3, b_beta3, HAS_G, HAS_BETA, PTX)
    for s in range(1, 4):  # a loop, not unrolled: as fast, and half the code to compile
        b_x0 = double(b_x0, b_u0, s, SPLIT, PTX, INTERPRETED)
        if BT > 16:
            b_x1 = double(b_x1, b_u1, s, SPLIT, PTX, INTERPRETED)
        if BT > 32:
            b_x2 = double(b_x2, b_u2, s, SPLIT, PTX, INTERPRETED)
            b_x3 = double(b_x3, b_u3, s, SPLIT, PTX, INTERPRETED)

    b_o0 = round_for(b_x0, p_out, INTERPRETED)
    b_none = round_for(b_zero, p_out, INTERPRETED)
    if BT == 16:
        put(p_out, o_0, o_c, b_o0, out_stride, n_rows, WHOLE)
    else:
        b_n10 = below(b_n10, b_g1, b_g0, b_beta1, HAS_G, HAS_BETA, PTX)
        b_y0 = tl.trans(b_x0)
        b_s10 = mul_transposed(b_zero, b_y0, b_n10, SPLIT, PTX, INTERPRETED)
        b_x10 = mul_transposed(b_zero, b_x1, b_s10, SPLIT, PTX, INTERPRETED)
        b_o0 = _beside(b_o0, b_none)
        b_o1 = _beside(round_for(b_x10, p_out, INTERPRETED), round_for(b_x1, p_out, INTERPRETED))
        if BT == 32:
            put(p_out, o_0, o_c, b_o0, out_stride, n_rows, WHOLE)
            put(p_out, o_1, o_c, b_o1, out_stride, n_rows, WHOLE)
        else:
            b_none = _beside(b_none, b_none)
            put(p_out, o_0, o_c, _beside(b_o0, b_none), out_stride, n_rows, WHOLE)
            put(p_out, o_1, o_c, _beside(b_o1, b_none), out_stride, n_rows, WHOLE)
            b_y1 = tl.trans(b_x1)
            b_y01 = tl.trans(b_x10)
            b_n32 = below(b_n32, b_g3, b_g2, b_beta3, HAS_G, HAS_BETA, PTX)
            b_s32 = mul_transposed(b_zero, tl.trans(b_x2), b_n32, SPLIT, PTX, INTERPRETED)
            b_x32 = mul_transposed(b_zero, b_x3, b_s32, SPLIT, PTX, INTERPRETED)
            b_n20 = below(b_n20, b_g2, b_g0, b_beta2, HAS_G, HAS_BETA, PTX)
            b_n21 = below(b_n21, b_g2, b_g1, b_beta2, HAS_G, HAS_BETA, PTX)
            b_n30 = below(b_n30, b_g3, b_g0, b_beta3, HAS_G, HAS_BETA, PTX)
            b_n31 = below(b_n31, b_g3, b_g1, b_beta3, HAS_G, HAS_BETA, PTX)
            b_s21 = mul_transposed(b_zero, b_y1, b_n21, SPLIT, PTX, INTERPRETED)
            b_s31 = mul_transposed(b_zero, b_y1, b_n31, SPLIT, PTX, INTERPRETED)
            b_s20 = mul_two_transposed(b_y0, b_n20, b_y01, b_n21, SPLIT, PTX, INTERPRETED)
            b_s30 = mul_two_transposed(b_y0, b_n30, b_y01, b_n31, SPLIT, PTX, INTERPRETED)
            b_x21 = mul_transposed(b_zero, b_x2, b_s21, SPLIT, PTX, INTERPRETED)
            b_x20 = mul_transposed(b_zero, b_x2, b_s20, SPLIT, PTX, INTERPRETED)
            b_o2 = _beside(round_for(b_x2, p_out, INTERPRETED), round_for(b_zero, p_out, INTERPRETED))
            b_o20 = _beside(round_for(b_x20, p_out, INTERPRETED), round_for(b_x21, p_out, INTERPRETED))
            put(p_out, o_2, o_c, _beside(b_o20, b_o2), out_stride, n_rows, WHOLE)
            b_x31 = mul_two_transposed(b_x32, b_s21, b_x3, b_s31, SPLIT, PTX, INTERPRETED)
            b_x30 = mul_two_transposed(b_x32, b_s20, b_x3, b_s30, SPLIT, PTX, INTERPRETED)
            b_o3 = _beside(round_for(b_x32, p_out, INTERPRETED), round_for(b_x3, p_out, INTERPRETED))
            b_o30 = _beside(round_for(b_x30, p_out, INTERPRETED), round_for(b_x31, p_out, INTERPRETED))
            put(p_out, o_3, o_c, _beside(b_o30, b_o3), out_stride, n_rows, WHOLE)
