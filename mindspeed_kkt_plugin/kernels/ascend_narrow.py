"""The vector cores' part of the Ascend kernel for 8 or 16 lanes a task: all 32 columns of the blocks on the diagonal
are one tile."""
import triton
import triton.language as tl

from .ascend_gating import decay, load_gate, strength
from .ascend_scratch import BLOCK, SPACE


@triton.jit
def _step(b_m, j: tl.constexpr, N: tl.constexpr):
    """One step of the substitution on b_m[column, row, block]: rows below j take column j times row j."""
    b_column = tl.extract_slice(b_m, (j, j + 1, 0), (1, 31 - j, N), (1, 1, 1))
    b_row = tl.extract_slice(b_m, (0, j, 0), (j, 1, N), (1, 1, 1))
    b_below = tl.extract_slice(b_m, (0, j + 1, 0), (j, 31 - j, N), (1, 1, 1))
    return tl.insert_slice(b_m, b_column * b_row + b_below, (0, j + 1, 0), (j, 31 - j, N), (1, 1, 1))


@triton.jit
def _late_step(b_r, i: tl.constexpr, j: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """The same on the last ROWS rows only, b_r[row, column, block], whose row i is row j of all."""
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
                    b_m = _step(b_m, group * 4 + i, N)
    # The hardware repeats along the second axis and loops over the first: few rows of many columns go better turned.
    b_r = tl.permute(tl.extract_slice(b_m, (0, 24, 0), (32, 8, N), (1, 1, 1)), (1, 0, 2))
    for _ in range(one):
        for i in tl.static_range(7):
            b_r = _late_step(b_r, i, 24 + i, 8, N)
    return tl.insert_slice(b_m, tl.permute(b_r, (1, 0, 2)), (0, 24, 0), (32, 8, N), (1, 1, 1))


@triton.jit
def _diagonal(b_m, FIRST: tl.constexpr, N: tl.constexpr):
    """1 on the diagonal and 0 above it, in 16 columns from FIRST on. On a vector core a mask's bits must fill 32
    bytes a column, or the compiler pads them; and it keeps each mask in the 16-bit tile that it came from, 16 KB with
    32 blocks and all rows. So all rows with 16 blocks, and 16 with 32."""
    ROWS: tl.constexpr = 512 // N
    ROW: tl.constexpr = FIRST * (32 - ROWS) // 16
    o_r = tl.arange(0, ROWS) + (ROW - FIRST)
    o_c = tl.arange(0, 16)
    b_x = tl.extract_slice(b_m, (FIRST, ROW, 0), (16, ROWS, N), (1, 1, 1))
    b_x = tl.where((o_r[None, :] > o_c[:, None])[:, :, None], b_x, 0.0)
    b_x = tl.where((o_r[None, :] == o_c[:, None])[:, :, None], 1.0, b_x)
    return tl.insert_slice(b_m, b_x, (FIRST, ROW, 0), (16, ROWS, N), (1, 1, 1))


@triton.jit
def _store_columns(p_inverse, b_m, FIRST: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """Stores the last ROWS rows of 16 columns of the inverses, from FIRST on, by column, block and row."""
    o_c, o_n, o_r = tl.arange(0, 16), tl.arange(0, N), tl.arange(0, ROWS)
    b_x = tl.permute(tl.extract_slice(b_m, (FIRST, 32 - ROWS, 0), (16, ROWS, N), (1, 1, 1)), (0, 2, 1))
    p_x = p_inverse + FIRST * (N * 32) + (32 - ROWS)
    tl.store(p_x + o_c[:, None, None] * (N * 32) + o_n[None, :, None] * 32 + o_r[None, None, :], b_x)


@triton.jit
def invert_narrow(p_keys, p_gate, p_strength, p_lower, p_inverse, one, LANES: tl.constexpr):
    """Inverses of the blocks on the diagonal and -L of those below, from K K^T, g and beta."""
    BLOCKS: tl.constexpr = LANES * 2
    o, o_n, o_l = tl.arange(0, 32), tl.arange(0, BLOCKS), tl.arange(0, LANES)
    b_g0 = load_gate(p_gate, LANES, 32, 64)
    b_g1 = load_gate(p_gate + 32, LANES, 32, 64)
    b_g = load_gate(p_gate, BLOCKS, 32, 32)
    b_b1 = load_gate(p_strength + 32, LANES, 32, 64)
    b_b = load_gate(p_strength, BLOCKS, 32, 32)
    # K K^T is symmetric: as [column, block, row], a turn of the last two axes makes the blocks innermost.
    b_s = tl.load(p_keys + o[:, None, None] * 64 + o_n[None, :, None] * BLOCK + o[None, None, :])
    b_m = tl.permute(b_s * decay(b_g[None, :, :] - tl.permute(b_g, (1, 0))[:, :, None]), (0, 2, 1))
    b_m = b_m * tl.permute(strength(b_g, b_b), (1, 0))[None, :, :]
    # The blocks below the diagonal as [lane, column, row], so that beta lies along the last axis.
    b_x = tl.load(p_keys + 32 + o_l[:, None, None] * SPACE + o[None, :, None] * 64 + o[None, None, :])
    b_x = b_x * decay(b_g1[:, None, :] - b_g0[:, :, None]) * strength(b_g1, b_b1)[:, None, :]
    tl.store(p_lower + o_l[:, None, None] * 1024 + o[None, :, None] * 32 + o[None, None, :], b_x)
    b_m = _substitute(b_m, one, BLOCKS)
    b_m = _diagonal(b_m, 16, BLOCKS)
    b_m = _diagonal(b_m, 0, BLOCKS)
    _store_columns(p_inverse, b_m, 16, 16, BLOCKS)
    _store_columns(p_inverse, b_m, 0, 32, BLOCKS)
