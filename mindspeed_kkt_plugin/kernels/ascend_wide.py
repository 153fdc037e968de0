"""The vector cores' part of the Ascend kernel for 32 lanes a task: columns 0-15 of the blocks on the diagonal and the
16x16 of columns 16-31 are two tiles, since one of all columns would take 128 of a vector core's 192 KB.

In both, as in the narrow kernel, the innermost axis runs over blocks. 128 bytes of it a vector core, not 64, halve what
a substitution step wastes of each 256-byte instruction.
"""
import triton
import triton.language as tl

from .ascend_gating import decay, load_gate, strength
from .ascend_scratch import BLOCK, SPACE


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
def _lower(p_keys, p_lower, b_g, b_gc, b_beta, LANES: tl.constexpr):
    """-L of 16 columns of the blocks below the diagonal, by [lane, column, row]: beta lies along the last axis."""
    o_l, o_c, o_r = tl.arange(0, LANES), tl.arange(0, 16), tl.arange(0, 32)
    b_x = tl.load(p_keys + o_l[:, None, None] * SPACE + o_c[None, :, None] * 64 + o_r[None, None, :])
    b_x = b_x * decay(b_g[:, None, :] - b_gc[:, :, None]) * strength(b_g, b_beta)[:, None, :]
    tl.store(p_lower + o_l[:, None, None] * 1024 + o_c[None, :, None] * 32 + o_r[None, None, :], b_x)


@triton.jit
def _update(b_t, b_column, b_row, ROW: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """Adds column times row to the first COLUMNS columns of ROWS rows from ROW on; b_t[column, row, block]."""
    b_below = tl.extract_slice(b_t, (0, ROW, 0), (COLUMNS, ROWS, N), (1, 1, 1))
    return tl.insert_slice(b_t, b_column * b_row + b_below, (0, ROW, 0), (COLUMNS, ROWS, N), (1, 1, 1))


@triton.jit
def _left_step(b_l, j: tl.constexpr, N: tl.constexpr):
    """Step j of the substitution, below 16: it concerns columns 0-15 only."""
    b_column = tl.extract_slice(b_l, (j, j + 1, 0), (1, 31 - j, N), (1, 1, 1))
    b_row = tl.extract_slice(b_l, (0, j, 0), (j, 1, N), (1, 1, 1))
    return _update(b_l, b_column, b_row, j + 1, j, 31 - j, N)


@triton.jit
def _right_step(b_l, b_r, j: tl.constexpr, N: tl.constexpr):
    """Step 16 + j: column j of the right tile times row 16 + j of both tiles."""
    b_column = tl.extract_slice(b_r, (j, j + 1, 0), (1, 15 - j, N), (1, 1, 1))
    b_l = _update(b_l, b_column, tl.extract_slice(b_l, (0, 16 + j, 0), (16, 1, N), (1, 1, 1)), 17 + j, 16, 15 - j, N)
    if j >= 1:
        b_r = _update(b_r, b_column, tl.extract_slice(b_r, (0, j, 0), (j, 1, N), (1, 1, 1)), j + 1, j, 15 - j, N)
    return b_l, b_r


@triton.jit
def _substitute(b_l, b_r, one, N: tl.constexpr):
    """Forward substitution, in place, in groups of four steps as in ascend_narrow.py."""
    for group in tl.static_range(4):
        for _ in range(one):
            for i in tl.static_range(4):
                if group * 4 + i >= 1:
                    b_l = _left_step(b_l, group * 4 + i, N)
    for group in tl.static_range(4):
        for _ in range(one):
            for i in tl.static_range(4):
                if group * 4 + i < 15:
                    b_l, b_r = _right_step(b_l, b_r, group * 4 + i, N)
    return b_l, b_r


@triton.jit
def _diagonal(b_t, N: tl.constexpr):
    """1 on the diagonal and 0 above it, in 16x16 at the tile's start. Masks of 8x8 only: see ascend_narrow.py."""
    o = tl.arange(0, 8)
    b_t = tl.insert_slice(b_t, tl.zeros((8, 8, N), tl.float32), (8, 0, 0), (8, 8, N), (1, 1, 1))
    for i in tl.static_range(2):
        b_x = tl.extract_slice(b_t, (8 * i, 8 * i, 0), (8, 8, N), (1, 1, 1))
        b_x = tl.where((o[None, :] > o[:, None])[:, :, None], b_x, 0.0)
        b_x = tl.where((o[None, :] == o[:, None])[:, :, None], 1.0, b_x)
        b_t = tl.insert_slice(b_t, b_x, (8 * i, 8 * i, 0), (8, 8, N), (1, 1, 1))
    return b_t


@triton.jit
def _turn(b_t, C: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """8 columns from C on, as [column, block, row]."""
    return tl.permute(tl.extract_slice(b_t, (C, 0, 0), (8, ROWS, N), (1, 1, 1)), (0, 2, 1))


@triton.jit
def _store_columns(p_inverse, b_x, C: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """Stores the last ROWS rows of 8 columns of the inverses, from C on, by column, block and row."""
    o_c, o_n, o_r = tl.arange(0, 8), tl.arange(0, N), tl.arange(0, ROWS)
    p_x = p_inverse + C * (N * 32) + (32 - ROWS)
    tl.store(p_x + o_c[:, None, None] * (N * 32) + o_n[None, :, None] * 32 + o_r[None, None, :], b_x)


@triton.jit
def invert_wide(p_keys, p_gate, p_strength, p_lower, p_inverse, p_zero, eye, one, LANES: tl.constexpr):
    """Inverses of the blocks on the diagonal and -L of those below, from K K^T, g and beta. The order of statements
    decides where the compiler places buffers in UB, and so what has to wait: docs/en/kernel-lab.md."""
    N: tl.constexpr = LANES * 2
    b_g = load_gate(p_gate, N, 32, 32)
    b_beta = load_gate(p_strength, N, 32, 32)
    b_g1 = load_gate(p_gate + 32, LANES, 32, 64)
    b_beta1 = load_gate(p_strength + 32, LANES, 32, 64)
    b_g00 = load_gate(p_gate, LANES, 16, 64)
    b_g01 = load_gate(p_gate + 16, LANES, 16, 64)
    b_gt = tl.permute(b_g, (1, 0))
    b_st = tl.permute(strength(b_g, b_beta), (1, 0))
    # 256 bytes a vector core between the gates and the tiles: operands of an instruction are read together only from
    # different halves of 512 bytes. The compiler keeps what is stored, so zeros go where zeros are (kkt_solve_kernel).
    o_pad, o_8 = tl.arange(0, LANES // 2), tl.arange(0, 8)
    b_pad = tl.load(eye + 32 + o_pad[:, None] * 64 + o_8[None, :])

    # Two pieces of one tile: the first is turned while the second is under way. Loads of the right tile and of the
    # blocks below stand where they are under way during arithmetic; the cube then begins the next task's products.
    b_l = tl.broadcast_to(b_gt[None, :, :], (16, 32, N))
    for i in tl.static_range(2):
        b_x = _load_columns(p_keys + i * (8 * 64), 8, 32, N)
        b_l = tl.insert_slice(b_l, b_x, (i * 8, 0, 0), (8, 32, N), (1, 1, 1))
    for i in tl.static_range(2):
        for _ in range(one):
            b_l = _gate_columns(b_l, b_gt, b_st, i * 4, 4, 0, 32, N)
    b_r = _load_columns(p_keys + (16 * 64 + 16), 16, 16, N)
    for i in tl.static_range(2, 4):
        for _ in range(one):
            b_l = _gate_columns(b_l, b_gt, b_st, i * 4, 4, 0, 32, N)
    for i in tl.static_range(2):
        for _ in range(one):
            b_r = _gate_columns(b_r, b_gt, b_st, i * 8, 8, 16, 16, N)
    _lower(p_keys + 32, p_lower, b_g1, b_g00, b_beta1, LANES)
    _lower(p_keys + (32 + 16 * 64), p_lower + 16 * 32, b_g1, b_g01, b_beta1, LANES)
    b_l, b_r = _substitute(b_l, b_r, one, N)
    b_l = _diagonal(b_l, N)
    b_r = _diagonal(b_r, N)
    b_r0 = _turn(b_r, 0, 16, N)
    b_r1 = _turn(b_r, 8, 16, N)
    b_l0 = _turn(b_l, 0, 32, N)
    b_l1 = _turn(b_l, 8, 32, N)
    tl.store(p_zero + o_pad[:, None] * 32 + o_8[None, :], b_pad)
    _store_columns(p_inverse, b_r0, 16, 16, N)
    _store_columns(p_inverse, b_r1, 24, 16, N)
    _store_columns(p_inverse, b_l0, 0, 32, N)
    _store_columns(p_inverse, b_l1, 8, 32, N)
