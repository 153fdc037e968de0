"""Steps on 16 x 16 tiles, one or a batch of them, that both ways of making a chunk are built from (portable kernel).

Row numbers o_t are [rows] or [tiles, rows]; whatever is made from them has the same leading axis.
"""
from __future__ import annotations

import triton
import triton.language as tl

from .products import decay, mul_transposed, turned


@triton.jit
def keys(p_k, o_t, i_k, stride: tl.constexpr, n_rows, K: tl.constexpr, BK: tl.constexpr, WHOLE: tl.constexpr,
         INTERPRETED: tl.constexpr):
    """Rows o_t of the chunk, columns i_k to i_k + BK; zeros where there is none."""
    o_t = tl.expand_dims(o_t, -1)
    o_k = i_k + tl.arange(0, BK)
    p = p_k + o_t * stride + o_k[None, :]
    if WHOLE and K % BK == 0:
        b_k = tl.load(p)
    elif K % BK == 0:
        b_k = tl.load(p, mask=o_t < n_rows, other=0.0)
    else:
        b_k = tl.load(p, mask=(o_t < n_rows) & (o_k < K)[None, :], other=0.0)
    if INTERPRETED:  # Triton 3.2's interpreter multiplies the bit patterns of bf16
        b_k = b_k.to(tl.float32)
    return b_k


@triton.jit
def gates(p_g, o_t, stride: tl.constexpr, n_rows, HAS: tl.constexpr, WHOLE: tl.constexpr):
    b_g = tl.zeros(o_t.shape, tl.float32)  # stays, and is never read, without g
    if HAS and WHOLE:
        b_g = tl.load(p_g + o_t * stride).to(tl.float32)
    elif HAS:  # past the end the last gate again, so that no difference there is large
        b_g = tl.load(p_g + tl.minimum(o_t, n_rows - 1) * stride).to(tl.float32)
    return b_g


@triton.jit
def betas(p_beta, o_t, stride: tl.constexpr, n_rows, HAS: tl.constexpr, WHOLE: tl.constexpr):
    b_beta = tl.zeros(o_t.shape, tl.float32)  # stays, and is never read, without beta
    if HAS and WHOLE:
        b_beta = tl.load(p_beta + o_t * stride).to(tl.float32)
    elif HAS:
        b_beta = tl.load(p_beta + o_t * stride, mask=o_t < n_rows, other=0.0).to(tl.float32)
    return b_beta


@triton.jit
def below(b_s, b_gi, b_gj, b_beta, HAS_G: tl.constexpr, HAS_BETA: tl.constexpr, PTX: tl.constexpr):
    """-L of a tile below the diagonal, from the product of its keys."""
    if HAS_G:
        b_s *= decay(tl.expand_dims(b_gi, -1) - tl.expand_dims(b_gj, -2), PTX)
    if HAS_BETA:
        b_s *= tl.expand_dims(b_beta, -1)
    return -b_s


@triton.jit
def leaves(b_s, b_g, b_beta, HAS_G: tl.constexpr, HAS_BETA: tl.constexpr, PTX: tl.constexpr):
    """Of a tile on the diagonal: the inverse of its 2 x 2 leaves, and -L transposed.

    The product of the keys is symmetric, so one pass makes -L below its diagonal and the transpose of it above.
    """
    o = tl.arange(0, 16)
    lower = o[:, None] > o[None, :]
    gap = o[:, None] ^ o[None, :]
    if HAS_G:
        b_gap = tl.expand_dims(b_g, -1) - tl.expand_dims(b_g, -2)
        b_s *= decay(tl.where(lower, b_gap, -b_gap), PTX)
    if HAS_BETA:
        b_s *= tl.where(lower, tl.expand_dims(b_beta, -1), tl.expand_dims(b_beta, -2))
    b_leaf = tl.where(gap == 1, -b_s, tl.where(gap == 0, 1.0, 0.0))
    return tl.where(lower | (gap == 0), b_leaf, 0.0), tl.where(lower, 0.0, -b_s)


@triton.jit
def double(b_x, b_u, s, SPLIT: tl.constexpr, PTX: tl.constexpr, INTERPRETED: tl.constexpr):
    """From inverse blocks of 2^s rows to 2^(s+1): X - X L X, L the square between two blocks.

    Blocks, not powers of L: on correlated keys powers grow far beyond the result and cancel.
    """
    o = tl.arange(0, 16)
    between = ((o[:, None] ^ o[None, :]) >> s) == 1
    b_p = mul_transposed(tl.zeros(b_x.shape, tl.float32), b_x, tl.where(between, b_u, 0.0), SPLIT, PTX, INTERPRETED)
    return mul_transposed(b_x, b_p, turned(b_x), SPLIT, PTX, INTERPRETED)


@triton.jit
def put(p_out, o_t, o_c, b_x, stride: tl.constexpr, n_rows, WHOLE: tl.constexpr):
    """b_x to rows o_t and columns o_c of the chunk. o_c has an axis of one for the rows."""
    o_t = tl.expand_dims(o_t, -1)
    p = p_out + o_t * stride + o_c
    if WHOLE:
        tl.store(p, b_x)
    else:
        tl.store(p, b_x, mask=o_t < n_rows)
