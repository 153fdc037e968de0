"""The vector cores' part of the Ascend kernel for 32 lanes a task: columns 0-15 of the blocks on the diagonal and the
16x16 of columns 16-31 are two tiles, since one of all columns would take 128 of a vector core's 192 KB.

In both, as in ascend_narrow.py, the innermost axis runs over blocks. A vector core's half of it is 128 bytes, not 64,
of the 256 that it handles a cycle: a substitution step costs a lane half as many cycles.
"""
import triton
import triton.language as tl

from .ascend_blocks import decay, lower, step, store_columns, strength, turn, unit_lower, update
from .ascend_scratch import BLOCK, tile


@triton.jit
def _load_columns(p_keys, COLUMNS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """COLUMNS columns of K K^T of N blocks, [column, row, block]. It is symmetric: rows are loaded as columns."""
    o_c, o_n, o_r = tl.arange(0, COLUMNS), tl.arange(0, N), tl.arange(0, ROWS)
    b_s = tl.load(p_keys + o_c[:, None, None] * 64 + o_n[None, :, None] * BLOCK + o_r[None, None, :])
    return tl.permute(b_s, (0, 2, 1))


@triton.jit
def _gate_columns(b_t, b_g, b_strength, C: tl.constexpr, COLUMNS: tl.constexpr, FIRST: tl.constexpr, ROWS: tl.constexpr,
                  N: tl.constexpr):
    """COLUMNS columns of b_t from C on, times decay and strength; b_t's first row and column are FIRST of the block.
    A piece at a time: the decay of all columns does not fit beside them."""
    b_x = tl.extract_slice(b_t, (C, 0, 0), (COLUMNS, ROWS, N), (1, 1, 1))
    b_row = tl.extract_slice(b_g, (FIRST, 0), (ROWS, N), (1, 1))
    b_column = tl.extract_slice(b_g, (FIRST + C, 0), (COLUMNS, N), (1, 1))
    b_s = tl.extract_slice(b_strength, (FIRST, 0), (ROWS, N), (1, 1))
    b_x = b_x * decay(b_row[None, :, :] - b_column[:, None, :]) * b_s[None, :, :]
    return tl.insert_slice(b_t, b_x, (C, 0, 0), (COLUMNS, ROWS, N), (1, 1, 1))


@triton.jit
def _right_step(b_l, b_r, j: tl.constexpr, N: tl.constexpr):
    """Step 16 + j: column j of the right tile times row 16 + j of both tiles."""
    b_column = tl.extract_slice(b_r, (j, j + 1, 0), (1, 15 - j, N), (1, 1, 1))
    b_l = update(b_l, b_column, tl.extract_slice(b_l, (0, 16 + j, 0), (16, 1, N), (1, 1, 1)), 17 + j, 16, 15 - j, N)
    if j >= 1:
        b_r = step(b_r, j, 16, N)
    return b_l, b_r


@triton.jit
def _substitute(b_l, b_r, one, N: tl.constexpr):
    """Forward substitution, in place, in groups of four steps as in ascend_narrow.py. The first 16 concern the left
    tile only."""
    for group in tl.static_range(4):
        for _ in range(one):
            for i in tl.static_range(4):
                if group * 4 + i >= 1:
                    b_l = step(b_l, group * 4 + i, 32, N)
    for group in tl.static_range(4):
        for _ in range(one):
            for i in tl.static_range(4):
                if group * 4 + i < 15:
                    b_l, b_r = _right_step(b_l, b_r, group * 4 + i, N)
    return b_l, b_r


@triton.jit
def _diagonal(b_t, N: tl.constexpr):
    """1 on the diagonal and 0 above it, in the 16x16 at the tile's start. Its two 8x8 on the diagonal are masked, for
    the reasons in ascend_narrow.py, and the corner above them is filled."""
    o = tl.arange(0, 8)
    b_t = tl.insert_slice(b_t, tl.zeros((8, 8, N), tl.float32), (8, 0, 0), (8, 8, N), (1, 1, 1))
    for i in tl.static_range(2):
        b_x = tl.extract_slice(b_t, (8 * i, 8 * i, 0), (8, 8, N), (1, 1, 1))
        b_t = tl.insert_slice(b_t, unit_lower(b_x, o, o), (8 * i, 8 * i, 0), (8, 8, N), (1, 1, 1))
    return b_t


@triton.jit
def invert_wide(p_keys, p_gate, p_strength, p_lower, p_inverse, p_zero, eye, one, LANES: tl.constexpr):
    """Inverses of the blocks on the diagonal and -L of those below, from K K^T, g and beta.

    UB is full. The order of statements, and pieces inside loops of one round, decide where the compiler places buffers
    and what then has to wait for what: docs/en/kernel-lab.md.
    """
    N: tl.constexpr = LANES * 2
    b_g = tl.load(tile(p_gate, N, 32, 32))
    b_beta = tl.load(tile(p_strength, N, 32, 32))
    b_g1 = tl.load(tile(p_gate + 32, LANES, 32, 64))
    b_beta1 = tl.load(tile(p_strength + 32, LANES, 32, 64))
    b_g00 = tl.load(tile(p_gate, LANES, 16, 64))
    b_g01 = tl.load(tile(p_gate + 16, LANES, 16, 64))
    b_gt = tl.permute(b_g, (1, 0))
    b_st = tl.permute(strength(b_g, b_beta), (1, 0))
    # 256 bytes a vector core that nothing needs, to shift the tiles: an instruction reads both operands at once only if
    # they lie in different halves of 512 bytes. The compiler drops what is never stored; these zeros are stored over
    # zeros (p_zero in kkt_solve_kernel).
    o_pad, o_8 = tl.arange(0, LANES // 2), tl.arange(0, 8)
    b_pad = tl.load(eye + 32 + o_pad[:, None] * 64 + o_8[None, :])

    # Two pieces of one tile: the first is turned while the second is under way. What the tile holds before is never
    # read; zeros would be kept in UB over all tasks.
    b_l = tl.broadcast_to(b_gt[None, :, :], (16, 32, N))
    for i in tl.static_range(2):
        b_x = _load_columns(p_keys + i * (8 * 64), 8, 32, N)
        b_l = tl.insert_slice(b_l, b_x, (i * 8, 0, 0), (8, 32, N), (1, 1, 1))
    for i in tl.static_range(2):
        for _ in range(one):
            b_l = _gate_columns(b_l, b_gt, b_st, i * 4, 4, 0, 32, N)
    # This load, and those of `lower`, are hidden by arithmetic. After them the cube can overwrite K K^T with the next
    # task's, under the substitution.
    b_r = _load_columns(p_keys + (16 * 64 + 16), 16, 16, N)
    for i in tl.static_range(2, 4):
        for _ in range(one):
            b_l = _gate_columns(b_l, b_gt, b_st, i * 4, 4, 0, 32, N)
    for i in tl.static_range(2):
        for _ in range(one):
            b_r = _gate_columns(b_r, b_gt, b_st, i * 8, 8, 16, 16, N)
    lower(p_keys + 32, p_lower, b_g1, b_g00, b_beta1, 16, LANES)
    lower(p_keys + (32 + 16 * 64), p_lower + 16 * 32, b_g1, b_g01, b_beta1, 16, LANES)
    b_l, b_r = _substitute(b_l, b_r, one, N)
    b_l = _diagonal(b_l, N)
    b_r = _diagonal(b_r, N)
    b_r0 = turn(b_r, 0, 0, 8, 16, N)
    b_r1 = turn(b_r, 8, 0, 8, 16, N)
    b_l0 = turn(b_l, 0, 0, 8, 32, N)
    b_l1 = turn(b_l, 8, 0, 8, 32, N)
    tl.store(p_zero + o_pad[:, None] * 32 + o_8[None, :], b_pad)
    store_columns(p_inverse, b_r0, 16, 8, 16, N)
    store_columns(p_inverse, b_r1, 24, 8, 16, N)
    store_columns(p_inverse, b_l0, 0, 8, 32, N)
    store_columns(p_inverse, b_l1, 8, 8, 32, N)
