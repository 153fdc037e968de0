"""A chunk of 64 made by four warps, for calls of few chunks: there nothing counts but how long one chunk takes.

Each warp inverts one tile of the diagonal; what goes from warp to warp passes through shared memory. That is more
instructions a chunk than one_warp.py needs, on four times as many issue slots. Same arithmetic in the same order, so
a chunk has the same bits from either. Times: docs/en/gpu-kernel-log.md.
"""
from __future__ import annotations

import triton
import triton.language as tl

from .products import mul_transposed, turned
from .shared import round_for
from .tiles import below, betas, double, gates, keys, leaves, put


@triton.jit
def _pairs(b_x):
    """Of four tiles the even and the odd ones."""
    n: tl.constexpr = b_x.shape[0] // 2
    m: tl.constexpr = b_x.shape[1]
    return tl.split(tl.permute(tl.reshape(b_x, (n, 2, m, m)), (0, 2, 3, 1)))


@triton.jit
def _lower(b_a, b_ba, b_b):
    """Blocks twice as large, each from two on the diagonal and the one below the first.

    By selection: after tl.join, Triton would add up products of these blocks in another order than those of tiles.
    """
    n: tl.constexpr = b_a.shape[0]
    m: tl.constexpr = b_a.shape[1]
    i = tl.arange(0, 2)[:, None, None, None]  # block, i, row, j, column
    j = tl.arange(0, 2)[:, None]
    b_x = tl.where(j == 0, tl.where(i == 0, _spread(b_a), _spread(b_ba)), tl.where(i == 0, 0.0, _spread(b_b)))
    return tl.reshape(b_x, (n, 2 * m, 2 * m))


@triton.jit
def _spread(b_x):
    return tl.expand_dims(tl.expand_dims(b_x, 2), 1)


@triton.jit
def _between(b_a, b_n, b_b, SPLIT: tl.constexpr, PTX: tl.constexpr, INTERPRETED: tl.constexpr):
    """X_B N_BA X_A. The product in the middle is made transposed, as a right factor is wanted (see products.py)."""
    b_zero = tl.zeros(b_n.shape, tl.float32)
    b_s = mul_transposed(b_zero, turned(b_a), b_n, SPLIT, PTX, INTERPRETED)
    return mul_transposed(b_zero, b_b, b_s, SPLIT, PTX, INTERPRETED)


@triton.jit
def chunk_by_four_warps(
    p_k, p_g, p_beta, p_out, n_rows,
    k_stride: tl.constexpr, g_stride: tl.constexpr, beta_stride: tl.constexpr, out_stride: tl.constexpr,
    K: tl.constexpr, BK: tl.constexpr, HAS_G: tl.constexpr, HAS_BETA: tl.constexpr, WHOLE: tl.constexpr,
    KEY_PRECISION: tl.constexpr, SPLIT: tl.constexpr, PTX: tl.constexpr, INTERPRETED: tl.constexpr,
):
    """Level 0 is four tiles on the diagonal, level 1 two tiles between them, level 2 one square of 32 rows.

    Every level loads its own rows (a, and b below them), in the layout that it needs: bytes from L2 are free here.
    """
    o_0 = tl.arange(0, 4)[:, None] * 16 + tl.arange(0, 16)[None, :]
    o_1a = tl.arange(0, 2)[:, None] * 32 + tl.arange(0, 16)[None, :]
    o_1b = o_1a + 16
    o_2a = tl.arange(0, 32)
    o_2b = o_2a + 32
    b_g0 = gates(p_g, o_0, g_stride, n_rows, HAS_G, WHOLE)
    b_g1a = gates(p_g, o_1a, g_stride, n_rows, HAS_G, WHOLE)
    b_g1b = gates(p_g, o_1b, g_stride, n_rows, HAS_G, WHOLE)
    b_g2a = gates(p_g, o_2a, g_stride, n_rows, HAS_G, WHOLE)
    b_g2b = gates(p_g, o_2b, g_stride, n_rows, HAS_G, WHOLE)
    b_beta0 = betas(p_beta, o_0, beta_stride, n_rows, HAS_BETA, WHOLE)
    b_beta1 = betas(p_beta, o_1b, beta_stride, n_rows, HAS_BETA, WHOLE)
    b_beta2 = betas(p_beta, o_2b, beta_stride, n_rows, HAS_BETA, WHOLE)
    b_n0 = tl.zeros([4, 16, 16], tl.float32)
    b_n1 = tl.zeros([2, 16, 16], tl.float32)
    b_n2 = tl.zeros([32, 32], tl.float32)
    for i_k in range(0, K, BK):
        b_k0 = keys(p_k, o_0, i_k, k_stride, n_rows, K, BK, WHOLE, INTERPRETED)
        b_k1a = keys(p_k, o_1a, i_k, k_stride, n_rows, K, BK, WHOLE, INTERPRETED)
        b_k1b = keys(p_k, o_1b, i_k, k_stride, n_rows, K, BK, WHOLE, INTERPRETED)
        b_k2a = keys(p_k, o_2a, i_k, k_stride, n_rows, K, BK, WHOLE, INTERPRETED)
        b_k2b = keys(p_k, o_2b, i_k, k_stride, n_rows, K, BK, WHOLE, INTERPRETED)
        b_n0 = tl.dot(b_k0, turned(b_k0), b_n0, input_precision=KEY_PRECISION)
        b_n1 = tl.dot(b_k1b, turned(b_k1a), b_n1, input_precision=KEY_PRECISION)
        b_n2 = tl.dot(b_k2b, turned(b_k2a), b_n2, input_precision=KEY_PRECISION)

    b_none = round_for(tl.zeros([32, 32], tl.float32), p_out, INTERPRETED)
    put(p_out, o_2a, 32 + o_2a[None, :], b_none, out_stride, n_rows, WHOLE)

    b_x, b_u = leaves(b_n0, b_g0, b_beta0, HAS_G, HAS_BETA, PTX)
    for s in range(1, 4):
        b_x = double(b_x, b_u, s, SPLIT, PTX, INTERPRETED)

    b_n1 = below(b_n1, b_g1b, b_g1a, b_beta1, HAS_G, HAS_BETA, PTX)
    b_a, b_b = _pairs(b_x)
    b_x = _lower(b_a, _between(b_a, b_n1, b_b, SPLIT, PTX, INTERPRETED), b_b)
    o_1 = tl.arange(0, 2)[:, None] * 32 + tl.arange(0, 32)[None, :]
    put(p_out, o_1, o_1[:, None, :], round_for(b_x, p_out, INTERPRETED), out_stride, n_rows, WHOLE)

    b_n2 = below(b_n2, b_g2b, b_g2a, b_beta2, HAS_G, HAS_BETA, PTX)
    b_a, b_b = tl.split(tl.permute(b_x, (1, 2, 0)))
    b_x = _between(b_a, b_n2, b_b, SPLIT, PTX, INTERPRETED)
    put(p_out, o_2b, o_2a[None, :], round_for(b_x, p_out, INTERPRETED), out_stride, n_rows, WHOLE)
