"""The fused kernel for Ascend A2/A3 (arch32): K K^T on the cube, gate and block inverses on the vector cores, merge and
output on the cube. How a call becomes tasks is in ascend.py.

A task is up to 16 (chunk, head) pairs, its lanes: HEADS adjacent heads of each of up to LANES / HEADS adjacent chunks.
A lane has two blocks of 32x32 on its diagonal and one below. On the vector cores the innermost axis runs over blocks: a
coefficient of all of them is a few 32-byte pieces, and a substitution step a few long instructions. The compiler gives
each vector core half of that axis.
"""
import triton
import triton.language as tl

# fp32 from a block on the diagonal of K K^T to the next one: in a lane 32 rows of 64 down and 32 to the right. Lanes
# are 64 further apart than their 64x64 needs, so that one lane's second block is as far from the next one's first.
BLOCK = tl.constexpr(2080)
SPACE = tl.constexpr(4160)


@triton.jit
def _tile(base, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIDE: tl.constexpr):
    return base + tl.arange(0, ROWS)[:, None] * STRIDE + tl.arange(0, COLUMNS)[None, :]


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
    cores this took an estimated 2.5 us of arithmetic a task, and 1.5 us of loads for each of five tiles. It adds up a
    head's tokens of one chunk only: a NaN or Inf reaches all of these, and nothing else."""
    o_t, o_h = tl.arange(0, 64), tl.arange(0, HEADS)
    p_g = g + first + o_t[:, None] * TOKEN + o_h[None, :]
    if MASK:
        b_g = tl.load(p_g, mask=(o_t < rows)[:, None] & (o_h < heads)[None, :], other=0.0)
    else:
        b_g = tl.load(p_g)
    b_g = tl.dot(tl.trans(b_g), tl.load(_tile(p_eye, 64, 64, 64)), input_precision="ieee")
    tl.store(_tile(p_gate, HEADS, 64, 64), b_g)


@triton.jit
def _gates(g, beta, p_gate, p_strength, eye_g, eye_beta, first, rows, heads, HEADS: tl.constexpr, TOKEN: tl.constexpr,
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
    tl.store(_tile(p_keys + lane * SPACE, 64, 64, 64), b_s)


@triton.jit
def _products(k, p_keys, first, rows, heads, phase, k_head, K: tl.constexpr, KS: tl.constexpr, TOKEN: tl.constexpr,
              SHARE: tl.constexpr, HEADS: tl.constexpr, MASK: tl.constexpr):
    """K K^T of the lanes of every chunk that is there. Two lanes a round: their loads are under way together."""
    for pair in range(((rows + 63) // 64 * HEADS + 1) // 2):
        for i in tl.static_range(2):
            _product(k, p_keys, pair * 2 + i, first, rows, heads, phase, k_head, K, KS, TOKEN, SHARE, HEADS, MASK)


@triton.jit
def _store_rows(out, first, b_a, rows, TOKEN: tl.constexpr, MASK: tl.constexpr):
    """32 full rows of the result, as out's dtype."""
    p_o = _tile(out + first, 32, 64, TOKEN)
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
    return tl.trans(tl.load(_tile(p_inverse + block * 32, 32, 32, LANES * 64)))


@triton.jit
def _merge(out, p_inverse, p_lower, p_product, p_eye, first, rows, heads, o_head, TOKEN: tl.constexpr,
           HEADS: tl.constexpr, LANES: tl.constexpr, MASK: tl.constexpr):
    """The result of every lane: A0 [I 0] and A1 [(-L) A0, I]. The cube writes all of it, products with the identity
    where nothing is left to do: its output path rounds to out's dtype and skips tail rows. The right half of
    p_product holds identities (kkt_solve_kernel), so that a store has full rows. Two lanes a round, as in _products;
    a lane too many has no tokens, and a place in p_product."""
    lanes = (rows + 63) // 64 * heads
    b_top = tl.load(_tile(p_eye, 32, 64, 64))
    for pair in range((lanes + 1) // 2):
        for i in tl.static_range(2):
            lane, o_first, rows_lane = _lane(pair * 2 + i, first, rows, heads, o_head, HEADS, TOKEN)
            b_a0 = _inverse(p_inverse, lane * 2, LANES)
            b_w = tl.dot(tl.trans(tl.load(_tile(p_lower + lane * 1024, 32, 32, 32))), b_a0, input_precision="ieee")
            tl.store(_tile(p_product + lane * 2048, 32, 32, 64), b_w)
            _store_rows(out, o_first, tl.dot(b_a0, b_top, input_precision="ieee"), rows_lane, TOKEN, MASK)
    for pair in range((lanes + 1) // 2):
        for i in tl.static_range(2):
            lane, o_first, rows_lane = _lane(pair * 2 + i, first, rows, heads, o_head, HEADS, TOKEN)
            b_a1 = _inverse(p_inverse, lane * 2 + 1, LANES)
            b_w = tl.load(_tile(p_product + lane * 2048, 32, 64, 64))
            _store_rows(out, o_first + 32 * TOKEN, tl.dot(b_a1, b_w, input_precision="ieee"), rows_lane - 32, TOKEN,
                        MASK)


@triton.jit
def _load_gate(p_gate, N: tl.constexpr, STRIDE: tl.constexpr):
    """32 tokens of g or beta for N blocks, fp32 [N, 32]."""
    return tl.load(_tile(p_gate, N, 32, STRIDE))


@triton.jit
def _strength(b_g, b_beta):
    """-beta; NaN where g is NaN or infinite, which the clamp of the decay would hide."""
    return (b_g - b_g) - b_beta


@triton.jit
def _decay(b_difference):
    """exp of a difference of log decays, clamped to +-50 as the two calls do."""
    low = tl.maximum(b_difference, -50.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.exp(tl.minimum(low, 50.0, propagate_nan=tl.PropagateNan.ALL))


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


@triton.jit(do_not_specialize=["num_tasks", "k_head", "o_head", "one"])
def kkt_solve_kernel(
    k, g, beta, out, keys, inverse, lower, product, gate, strength, eye, eye_g, eye_beta, tasks, num_tasks,
    k_head, o_head, one,
    K: tl.constexpr, KS: tl.constexpr, K_TOKEN: tl.constexpr, SHARE: tl.constexpr, HEADS: tl.constexpr,
    LANES: tl.constexpr, G_TOKEN: tl.constexpr, O_TOKEN: tl.constexpr,
    MASK: tl.constexpr,
):
    """One program a cube core, tasks dealt out in turn.

    tasks: int64 [num_tasks, 8]: first element in k, in g and beta, in out; tokens; heads; place of the first head among
    the SHARE that read one key head; two unused, so that a row is a cache line.
    keys, inverse, lower, product, gate, strength: fp32 [programs, LANES * SPACE, 2048, 1024, 2048, 64, 64] between cube
    and vector cores, each an argument of its own so that the compiler orders only accesses that belong together.
    eye, eye_g, eye_beta: 64x64 identities, fp32 and of g's and beta's dtype.
    k_head, o_head and *_TOKEN: strides in elements. MASK: whether some task has part of a chunk, fewer than HEADS heads
    or an odd number of lanes. HEADS is a power of 2 and at most LANES / 2, so that a lane too many (_products, _merge)
    has a place.
    """
    tl.static_assert(HEADS * 2 <= LANES)
    BLOCKS: tl.constexpr = LANES * 2
    o, o_n, o_l = tl.arange(0, 32), tl.arange(0, BLOCKS), tl.arange(0, LANES)
    program = tl.program_id(0)
    stride = tl.num_programs(0)
    p_keys = keys + program * (LANES * SPACE)
    p_inverse = inverse + program * (LANES * 2048)
    p_lower = lower + program * (LANES * 1024)
    p_product = product + program * (LANES * 2048)
    p_gate = gate + program * (LANES * 64)
    p_strength = strength + program * (LANES * 64)

    p_t = tasks + program * 8
    rows = tl.load(p_t + 3).to(tl.int32)
    heads = tl.load(p_t + 4).to(tl.int32)
    _products(k, p_keys, tl.load(p_t), rows, heads, tl.load(p_t + 5).to(tl.int32), k_head, K, KS, K_TOKEN, SHARE, HEADS,
              MASK)
    _gates(g, beta, p_gate, p_strength, eye_g, eye_beta, tl.load(p_t + 1), rows, heads, HEADS, G_TOKEN, MASK)
    # The 16x16 above the diagonal of every inverse: nothing else is ever stored there.
    o_h = tl.arange(0, 16)
    p_zero = p_inverse + 16 * (BLOCKS * 32)
    tl.store(p_zero + o_h[:, None, None] * (BLOCKS * 32) + o_n[None, :, None] * 32 + o_h[None, None, :],
             tl.zeros((16, BLOCKS, 16), tl.float32))
    for task in range(program, num_tasks, stride):
        # A loop of one round, or the compiler's CV pipelining deals with two tasks at a time, both vector parts first,
        # though the second needs what the cube stores after the first: it does not see that they share memory.
        for _ in range(one):
            p_t = tasks + task * 8
            rows = tl.load(p_t + 3).to(tl.int32)
            heads = tl.load(p_t + 4).to(tl.int32)

            b_g0 = _load_gate(p_gate, LANES, 64)
            b_g1 = _load_gate(p_gate + 32, LANES, 64)
            b_g = _load_gate(p_gate, BLOCKS, 32)
            b_b1 = _load_gate(p_strength + 32, LANES, 64)
            b_b = _load_gate(p_strength, BLOCKS, 32)
            # K K^T is symmetric: as [column, block, row], a turn of the last two axes makes the blocks innermost.
            b_s = tl.load(p_keys + o[:, None, None] * 64 + o_n[None, :, None] * BLOCK + o[None, None, :])
            b_m = tl.permute(b_s * _decay(b_g[None, :, :] - tl.permute(b_g, (1, 0))[:, :, None]), (0, 2, 1))
            b_m = b_m * tl.permute(_strength(b_g, b_b), (1, 0))[None, :, :]
            # The blocks below the diagonal as [lane, column, row], so that beta lies along the last axis.
            b_x = tl.load(p_keys + 32 + o_l[:, None, None] * SPACE + o[None, :, None] * 64 + o[None, None, :])
            b_x = b_x * _decay(b_g1[:, None, :] - b_g0[:, :, None]) * _strength(b_g1, b_b1)[:, None, :]
            tl.store(p_lower + o_l[:, None, None] * 1024 + o[None, :, None] * 32 + o[None, None, :], b_x)
            b_m = _substitute(b_m, one, BLOCKS)
            b_m = _diagonal(b_m, 16, BLOCKS)
            b_m = _diagonal(b_m, 0, BLOCKS)
            _store_columns(p_inverse, b_m, 16, 16, BLOCKS)
            _store_columns(p_inverse, b_m, 0, 32, BLOCKS)

            # Under the first task's substitution: see _merge.
            if task == program:
                for lane in range(LANES):
                    b_e = tl.load(_tile(eye, 32, 32, 64))
                    tl.store(_tile(p_product + lane * 2048 + 32, 32, 32, 64), tl.dot(b_e, b_e, input_precision="ieee"))
            # The next task's products stand before this task's merge: the vector cores then seldom wait for the cube.
            # (By estimate, K = 128 in bf16; with 256 channels of fp32 the cube is the limit.)
            p_n = tasks + tl.minimum(task + stride, num_tasks - 1) * 8
            rows_next = tl.where(task + stride < num_tasks, tl.load(p_n + 3).to(tl.int32), 0)
            heads_next = tl.load(p_n + 4).to(tl.int32)
            _products(k, p_keys, tl.load(p_n), rows_next, heads_next, tl.load(p_n + 5).to(tl.int32), k_head, K, KS,
                      K_TOKEN, SHARE, HEADS, MASK)
            _gates(g, beta, p_gate, p_strength, eye_g, eye_beta, tl.load(p_n + 1), rows_next, heads_next, HEADS,
                   G_TOKEN, MASK)
            _merge(out, p_inverse, p_lower, p_product, eye, tl.load(p_t + 2), rows, heads, o_head, O_TOKEN, HEADS,
                   LANES, MASK)
