"""The vector cores' part of the Ascend kernel for 8 or 16 lanes a task: all 32 columns of the blocks on the diagonal
are one tile."""
import triton
import triton.language as tl

from .ascend_blocks import decay, lower, step, store_columns, strength, turn, unit_lower
from .ascend_scratch import BLOCK, tile


@triton.jit
def _late_step(b_r, i: tl.constexpr, j: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """`step` on the last ROWS rows only, b_r[row, column, block], whose row i is row j of all."""
    b_column = tl.extract_slice(b_r, (i + 1, j, 0), (ROWS - 1 - i, 1, N), (1, 1, 1))
    b_row = tl.extract_slice(b_r, (i, 0, 0), (1, j, N), (1, 1, 1))
    b_below = tl.extract_slice(b_r, (i + 1, 0, 0), (ROWS - 1 - i, j, N), (1, 1, 1))
    return tl.insert_slice(b_r, b_column * b_row + b_below, (i + 1, 0, 0), (ROWS - 1 - i, j, N), (1, 1, 1))


@triton.jit
def _substitute(b_m, one, N: tl.constexpr):
    """Forward substitution that turns N blocks -L [column, row, block] into (I + L)^-1 below the diagonal, in place.

    Column j of -L is read once, at step j, and then belongs to the inverse; nothing on or above the diagonal is ever
    read, so masking waits until the end.
    """
    # Four steps a group, each inside a loop of one round: the compiler carries the split over the two vector cores up
    # through about 11 chained slices and then gives up, both cores repeating all work; a loop is a new start. `one` is
    # a run-time 1, since a constant loop would be folded away.
    for group in tl.static_range(6):
        for _ in range(one):
            for i in tl.static_range(4):
                if group * 4 + i >= 1:
                    b_m = step(b_m, group * 4 + i, 32, N)
    # The hardware repeats along the second axis and loops over the first: few rows of many columns go better turned.
    b_r = tl.permute(tl.extract_slice(b_m, (0, 24, 0), (32, 8, N), (1, 1, 1)), (1, 0, 2))
    for _ in range(one):
        for i in tl.static_range(7):
            b_r = _late_step(b_r, i, 24 + i, 8, N)
    return tl.insert_slice(b_m, tl.permute(b_r, (1, 0, 2)), (0, 24, 0), (32, 8, N), (1, 1, 1))


@triton.jit
def _diagonal(b_m, C: tl.constexpr, N: tl.constexpr):
    """1 on the diagonal and 0 above it, in 16 columns from C on. On a vector core a mask's bits must fill 32 bytes a
    column, or the compiler pads them; and it keeps each mask in the 16-bit tile that it came from, 16 KB with 32 blocks
    and all rows. So all rows with 16 blocks, and 16 with 32."""
    ROWS: tl.constexpr = 512 // N
    ROW: tl.constexpr = C * (32 - ROWS) // 16
    b_x = tl.extract_slice(b_m, (C, ROW, 0), (16, ROWS, N), (1, 1, 1))
    b_x = unit_lower(b_x, tl.arange(0, 16), tl.arange(0, ROWS) + (ROW - C))
    return tl.insert_slice(b_m, b_x, (C, ROW, 0), (16, ROWS, N), (1, 1, 1))


@triton.jit
def invert_narrow(p_keys, p_gate, p_strength, p_lower, p_inverse, one, LANES: tl.constexpr):
    """Inverses of the blocks on the diagonal and -L of those below, from K K^T, g and beta."""
    N: tl.constexpr = LANES * 2
    o, o_n = tl.arange(0, 32), tl.arange(0, N)
    b_g0 = tl.load(tile(p_gate, LANES, 32, 64))
    b_g1 = tl.load(tile(p_gate + 32, LANES, 32, 64))
    b_g = tl.load(tile(p_gate, N, 32, 32))
    b_beta1 = tl.load(tile(p_strength + 32, LANES, 32, 64))
    b_beta = tl.load(tile(p_strength, N, 32, 32))
    # K K^T is symmetric: as [column, block, row], a turn of the last two axes makes the blocks innermost.
    b_s = tl.load(p_keys + o[:, None, None] * 64 + o_n[None, :, None] * BLOCK + o[None, None, :])
    b_m = tl.permute(b_s * decay(b_g[None, :, :] - tl.permute(b_g, (1, 0))[:, :, None]), (0, 2, 1))
    b_m = b_m * tl.permute(strength(b_g, b_beta), (1, 0))[None, :, :]
    lower(p_keys + 32, p_lower, b_g1, b_g0, b_beta1, 32, LANES)
    b_m = _substitute(b_m, one, N)
    b_m = _diagonal(b_m, 16, N)
    b_m = _diagonal(b_m, 0, N)
    store_columns(p_inverse, turn(b_m, 16, 16, 16, 16, N), 16, 16, 16, N)
    store_columns(p_inverse, turn(b_m, 0, 0, 16, 32, N), 0, 16, 32, N)
