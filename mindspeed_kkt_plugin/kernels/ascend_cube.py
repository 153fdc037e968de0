"""The cube's part of the Ascend kernel: K K^T before the vector cores' part, merge of their inverses after it."""
import triton
import triton.language as tl

from .ascend_scratch import LOWER, PRODUCT, SPACE, tile


@triton.jit
def _load_keys(k, first, rows, K: tl.constexpr, KS: tl.constexpr, TOKEN: tl.constexpr, MASK: tl.constexpr,
               channel: tl.constexpr):
    """64 tokens, KS channels from `channel` on; zero past `rows` and K."""
    o_r, o_c = tl.arange(0, 64), tl.arange(0, KS)
    p_k = k + first + channel + o_r[:, None] * TOKEN + o_c[None, :]
    if MASK:
        if K - channel < KS:
            return tl.load(p_k, mask=(o_r < rows)[:, None] & (o_c < K - channel)[None, :], other=0.0)
        return tl.load(p_k, mask=(o_r < rows)[:, None], other=0.0)
    if K - channel < KS:
        return tl.load(p_k, mask=(o_c < K - channel)[None, :], other=0.0)
    return tl.load(p_k)


@triton.jit
def _gate(g, p_gate, p_eye, first, rows, heads, HEADS: tl.constexpr, TOKEN: tl.constexpr, MASK: tl.constexpr):
    """g or beta of a chunk's lanes, [lane, 64] fp32. The product with the identity turns heads outermost; on the vector
    cores this took an estimated 2.5 us of arithmetic a task of 16 lanes, and 1.5 us of loads for each of five tiles. It
    adds up a head's tokens of one chunk only: a NaN or Inf reaches all of these, and nothing else."""
    o_t, o_h = tl.arange(0, 64), tl.arange(0, HEADS)
    p_g = g + first + o_t[:, None] * TOKEN + o_h[None, :]
    if MASK:
        b_g = tl.load(p_g, mask=(o_t < rows)[:, None] & (o_h < heads)[None, :], other=0.0)
    else:
        b_g = tl.load(p_g)
    b_g = tl.dot(tl.trans(b_g), tl.load(tile(p_eye, 64, 64, 64)), input_precision="ieee")
    tl.store(tile(p_gate, HEADS, 64, 64), b_g)


@triton.jit
def gates(g, beta, p_gate, p_strength, eye_g, eye_beta, first, rows, heads, HEADS: tl.constexpr, TOKEN: tl.constexpr,
          MASK: tl.constexpr):
    """g and beta of the lanes of every chunk that is there."""
    for chunk in range((rows + 63) // 64):
        place = chunk * (64 * HEADS)
        value = first + chunk * (64 * TOKEN)
        _gate(g, p_gate + place, eye_g, value, rows - chunk * 64, heads, HEADS, TOKEN, MASK)
        _gate(beta, p_strength + place, eye_beta, value, rows - chunk * 64, heads, HEADS, TOKEN, MASK)


@triton.jit
def _product(k, p_keys, lane, first, rows, heads, phase, k_head, K: tl.constexpr, KS: tl.constexpr,
             TOKEN: tl.constexpr, SHARE: tl.constexpr, HEADS: tl.constexpr, MASK: tl.constexpr):
    """K K^T of one lane's 64 tokens; zero where its head is not there."""
    chunk = lane // HEADS
    head = lane % HEADS
    rows_lane = rows - chunk * 64
    if MASK:
        rows_lane = tl.where(head < heads, rows_lane, 0)
    k_first = first + chunk * (64 * TOKEN) + ((head + phase) // SHARE).to(tl.int64) * k_head
    b_k = _load_keys(k, k_first, rows_lane, K, KS, TOKEN, MASK, 0)
    b_s = tl.dot(b_k, tl.trans(b_k), input_precision="ieee")
    for channel in tl.static_range(KS, K, KS):
        b_k = _load_keys(k, k_first, rows_lane, K, KS, TOKEN, MASK, channel)
        b_s = tl.dot(b_k, tl.trans(b_k), acc=b_s, input_precision="ieee")
    tl.store(tile(p_keys + lane * SPACE, 64, 64, 64), b_s)


@triton.jit
def products(k, p_keys, first, rows, heads, phase, k_head, K: tl.constexpr, KS: tl.constexpr, TOKEN: tl.constexpr,
             SHARE: tl.constexpr, HEADS: tl.constexpr, MASK: tl.constexpr):
    """K K^T of the lanes of every chunk that is there. Two lanes a round: their loads are under way together."""
    for pair in range(((rows + 63) // 64 * HEADS + 1) // 2):
        for i in tl.static_range(2):
            _product(k, p_keys, pair * 2 + i, first, rows, heads, phase, k_head, K, KS, TOKEN, SHARE, HEADS, MASK)


@triton.jit
def _store_rows(out, first, b_a, rows, TOKEN: tl.constexpr, MASK: tl.constexpr):
    """32 full rows of the result, as out's dtype."""
    p_o = tile(out + first, 32, 64, TOKEN)
    if MASK:
        tl.store(p_o, b_a.to(out.dtype.element_ty), mask=(tl.arange(0, 32) < rows)[:, None])
    else:
        tl.store(p_o, b_a.to(out.dtype.element_ty))


@triton.jit
def _lane(i, first, rows, heads, o_head, HEADS: tl.constexpr, TOKEN: tl.constexpr):
    """Number, first element in out and tokens of the i-th lane that is there."""
    chunk = i // heads
    head = i % heads
    return chunk * HEADS + head, first + chunk * (64 * TOKEN) + head.to(tl.int64) * o_head, rows - chunk * 64


@triton.jit
def _inverse(p_inverse, block, LANES: tl.constexpr):
    """A block's inverse, stored by column among those of all blocks."""
    return tl.trans(tl.load(tile(p_inverse + block * 32, 32, 32, LANES * 64)))


@triton.jit
def merge(out, p_inverse, p_lower, p_product, p_eye, first, rows, heads, o_head, TOKEN: tl.constexpr,
          HEADS: tl.constexpr, LANES: tl.constexpr, MASK: tl.constexpr):
    """The result of every lane: A0 [I 0] and A1 [(-L) A0, I]. The cube writes all of it, products with the identity
    where nothing is left to do: its output path rounds to out's dtype and skips tail rows. The right half of
    p_product holds identities (kkt_solve_kernel), so that a store has full rows. Two lanes a round, as in products;
    a lane too many has no tokens, and a place in p_product."""
    lanes = (rows + 63) // 64 * heads
    b_top = tl.load(tile(p_eye, 32, 64, 64))
    for pair in range((lanes + 1) // 2):
        for i in tl.static_range(2):
            lane, o_first, rows_lane = _lane(pair * 2 + i, first, rows, heads, o_head, HEADS, TOKEN)
            b_a0 = _inverse(p_inverse, lane * 2, LANES)
            b_w = tl.dot(tl.trans(tl.load(tile(p_lower + lane * LOWER, 32, 32, 32))), b_a0, input_precision="ieee")
            tl.store(tile(p_product + lane * PRODUCT, 32, 32, 64), b_w)
            _store_rows(out, o_first, tl.dot(b_a0, b_top, input_precision="ieee"), rows_lane, TOKEN, MASK)
    for pair in range((lanes + 1) // 2):
        for i in tl.static_range(2):
            lane, o_first, rows_lane = _lane(pair * 2 + i, first, rows, heads, o_head, HEADS, TOKEN)
            b_a1 = _inverse(p_inverse, lane * 2 + 1, LANES)
            b_w = tl.load(tile(p_product + lane * PRODUCT, 32, 64, 64))
            _store_rows(out, o_first + 32 * TOKEN, tl.dot(b_a1, b_w, input_precision="ieee"), rows_lane - 32, TOKEN,
                        MASK)
