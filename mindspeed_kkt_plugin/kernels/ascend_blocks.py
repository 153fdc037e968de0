"""What the vector cores do with 32x32 blocks at every width of the Ascend kernel: gate, substitution step, storing."""
import triton
import triton.language as tl

from .ascend_scratch import LOWER, SPACE


@triton.jit
def strength(b_g, b_beta):
    """-beta; NaN where g is NaN or infinite, which the clamp of the decay would hide."""
    return (b_g - b_g) - b_beta


@triton.jit
def decay(b_difference):
    """exp of a difference of log decays, clamped to +-50 as the two calls do."""
    low = tl.maximum(b_difference, -50.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.exp(tl.minimum(low, 50.0, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def lower(p_keys, p_lower, b_g, b_column, b_beta, COLUMNS: tl.constexpr, LANES: tl.constexpr):
    """-L of COLUMNS columns of the blocks below the diagonal, [lane, column, row] so that beta lies along the last
    axis. b_g, b_beta: of the rows, [lane, 32]; b_column: g of the columns, [lane, COLUMNS]."""
    o_l, o_c, o_r = tl.arange(0, LANES), tl.arange(0, COLUMNS), tl.arange(0, 32)
    b_x = tl.load(p_keys + o_l[:, None, None] * SPACE + o_c[None, :, None] * 64 + o_r[None, None, :])
    b_x = b_x * decay(b_g[:, None, :] - b_column[:, :, None]) * strength(b_g, b_beta)[:, None, :]
    tl.store(p_lower + o_l[:, None, None] * LOWER + o_c[None, :, None] * 32 + o_r[None, None, :], b_x)


@triton.jit
def update(b_t, b_column, b_row, ROW: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """Adds column times row to the first COLUMNS columns of ROWS rows from ROW on; b_t[column, row, block]."""
    b_below = tl.extract_slice(b_t, (0, ROW, 0), (COLUMNS, ROWS, N), (1, 1, 1))
    return tl.insert_slice(b_t, b_column * b_row + b_below, (0, ROW, 0), (COLUMNS, ROWS, N), (1, 1, 1))


@triton.jit
def step(b_t, j: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """Step j of the substitution on b_t[column, row, block] of ROWS rows: those below j take column j times row j."""
    b_column = tl.extract_slice(b_t, (j, j + 1, 0), (1, ROWS - 1 - j, N), (1, 1, 1))
    b_row = tl.extract_slice(b_t, (0, j, 0), (j, 1, N), (1, 1, 1))
    return update(b_t, b_column, b_row, j + 1, j, ROWS - 1 - j, N)


@triton.jit
def unit_lower(b_x, o_c, o_r):
    """1 on the diagonal and 0 above it; b_x[column, row, block] with columns o_c and rows o_r."""
    b_x = tl.where((o_r[None, :] > o_c[:, None])[:, :, None], b_x, 0.0)
    return tl.where((o_r[None, :] == o_c[:, None])[:, :, None], 1.0, b_x)


@triton.jit
def turn(b_t, C: tl.constexpr, ROW: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """COLUMNS columns from C on of ROWS rows from ROW on, as [column, block, row]."""
    return tl.permute(tl.extract_slice(b_t, (C, ROW, 0), (COLUMNS, ROWS, N), (1, 1, 1)), (0, 2, 1))


@triton.jit
def store_columns(p_inverse, b_x, C: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """Stores the last ROWS rows of COLUMNS columns of the inverses, from C on; b_x and global memory are by column,
    block and row."""
    o_c, o_n, o_r = tl.arange(0, COLUMNS), tl.arange(0, N), tl.arange(0, ROWS)
    p_x = p_inverse + C * (N * 32) + (32 - ROWS)
    tl.store(p_x + o_c[:, None, None] * (N * 32) + o_n[None, :, None] * 32 + o_r[None, None, :], b_x)
