"""The fused kernel for Ascend A2/A3 (arch32): K K^T on the cube, gate and block inverses on the vector cores, merge and
output on the cube. How a call becomes tasks is in ascend.py.

A task is up to 16 (chunk, head) pairs, its lanes: HEADS adjacent heads of each of LANES / HEADS adjacent chunks.
On the vector cores the innermost axis runs over lanes or their 32-row blocks: a coefficient of all of them is a few
32-byte pieces, and a substitution step a few long instructions. The compiler gives each vector core half of that axis.
"""
import triton
import triton.language as tl


@triton.jit
def _tile(base, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIDE: tl.constexpr):
    return base + tl.arange(0, ROWS)[:, None] * STRIDE + tl.arange(0, COLUMNS)[None, :]


@triton.jit
def _blocks(base, N: tl.constexpr):
    """Pointers to N blocks of 32x32 that lie one behind the other."""
    o = tl.arange(0, 32)
    return base + tl.arange(0, N)[:, None, None] * 1024 + o[None, :, None] * 32 + o[None, None, :]


@triton.jit
def _load_keys(k, first, rows, K: tl.constexpr, KS: tl.constexpr, TOKEN: tl.constexpr, MASK: tl.constexpr,
               channel: tl.constexpr):
    """32 tokens, KS channels from `channel` on; zero past `rows` and K."""
    o_r, o_c = tl.arange(0, 32), tl.arange(0, KS)
    p_k = k + first + channel + o_r[:, None] * TOKEN + o_c[None, :]
    if MASK:
        if K - channel < KS:
            return tl.load(p_k, mask=(o_r < rows)[:, None] & (o_c < K - channel)[None, :], other=0.0)
        return tl.load(p_k, mask=(o_r < rows)[:, None], other=0.0)
    if K - channel < KS:
        return tl.load(p_k, mask=(o_c < K - channel)[None, :], other=0.0)
    return tl.load(p_k)


@triton.jit
def _gates(g, p_gate, p_eye, first, rows, heads, one, HEADS: tl.constexpr, CHUNKS: tl.constexpr, TOKEN: tl.constexpr,
           MASK: tl.constexpr):
    """g or beta of every lane, [lane, 64] fp32. The product with the identity turns heads outermost; on the vector
    cores this took 2.5 us of arithmetic a task, and 1.5 us of loads for each of five tiles. It adds up a head's tokens
    of one chunk only, so that a NaN stays there."""
    o_t, o_h = tl.arange(0, 64), tl.arange(0, HEADS)
    for chunk in range(CHUNKS * one):  # a loop of one round would be folded away, and the compiler then never ends
        p_g = g + first + chunk * (64 * TOKEN) + o_t[:, None] * TOKEN + o_h[None, :]
        if MASK:
            b_g = tl.load(p_g, mask=(o_t < rows - chunk * 64)[:, None] & (o_h < heads)[None, :], other=0.0)
        else:
            b_g = tl.load(p_g)
        b_g = tl.dot(tl.trans(b_g), tl.load(_tile(p_eye, 64, 64, 64)), input_precision="ieee")
        tl.store(_tile(p_gate + chunk * (64 * HEADS), HEADS, 64, 64), b_g)


@triton.jit
def _products(k, p_diagonal, p_cross, first, rows, heads, phase, k_head, K: tl.constexpr, KS: tl.constexpr,
              TOKEN: tl.constexpr, SHARE: tl.constexpr, HEADS: tl.constexpr, LANES: tl.constexpr, MASK: tl.constexpr):
    """K K^T of every lane's 64 tokens, as two diagonal blocks and the one below; zeros for lanes that are not there,
    since the vector cores invert all."""
    for lane in range(LANES * tl.minimum(rows, 1)):
        chunk = lane // HEADS
        head = lane % HEADS
        rows_lane = rows - chunk * 64
        if MASK:
            rows_lane = tl.where(head < heads, rows_lane, 0)
        k_first = first + chunk * (64 * TOKEN) + ((head + phase) // SHARE).to(tl.int64) * k_head
        k_next = k_first + 32 * TOKEN
        b_k0 = _load_keys(k, k_first, rows_lane, K, KS, TOKEN, MASK, 0)
        b_k1 = _load_keys(k, k_next, rows_lane - 32, K, KS, TOKEN, MASK, 0)
        b_s0 = tl.dot(b_k0, tl.trans(b_k0), input_precision="ieee")
        b_s1 = tl.dot(b_k1, tl.trans(b_k1), input_precision="ieee")
        b_sx = tl.dot(b_k1, tl.trans(b_k0), input_precision="ieee")
        for channel in tl.static_range(KS, K, KS):
            b_k0 = _load_keys(k, k_first, rows_lane, K, KS, TOKEN, MASK, channel)
            b_k1 = _load_keys(k, k_next, rows_lane - 32, K, KS, TOKEN, MASK, channel)
            b_s0 = tl.dot(b_k0, tl.trans(b_k0), acc=b_s0, input_precision="ieee")
            b_s1 = tl.dot(b_k1, tl.trans(b_k1), acc=b_s1, input_precision="ieee")
            b_sx = tl.dot(b_k1, tl.trans(b_k0), acc=b_sx, input_precision="ieee")
        tl.store(_tile(p_diagonal + lane * 2048, 32, 32, 32), b_s0)
        tl.store(_tile(p_diagonal + lane * 2048 + 1024, 32, 32, 32), b_s1)
        tl.store(_tile(p_cross + lane * 1024, 32, 32, 32), b_sx)


@triton.jit
def _store_rows(out, first, b_a, rows, TOKEN: tl.constexpr, MASK: tl.constexpr):
    """32 full rows of the result, as out's dtype."""
    p_o = _tile(out + first, 32, 64, TOKEN)
    if MASK:
        tl.store(p_o, b_a.to(out.dtype.element_ty), mask=(tl.arange(0, 32) < rows)[:, None])
    else:
        tl.store(p_o, b_a.to(out.dtype.element_ty))


@triton.jit
def _merge(out, p_inverse, p_lower, p_product, p_eye, first, rows, heads, o_head, TOKEN: tl.constexpr,
           HEADS: tl.constexpr, MASK: tl.constexpr):
    """The result of every lane: A0 [I 0] and A1 [(-L) A0, I]. The cube writes all of it, products with the identity
    where nothing is left to do: its output path rounds to out's dtype and skips tail rows. The right half of
    p_product holds identities (kkt_solve_kernel), so that a store has full rows."""
    lanes = (rows + 63) // 64 * heads
    for i in range(lanes):
        lane = i // heads * HEADS + i % heads
        b_w = tl.dot(tl.load(_tile(p_lower + lane * 1024, 32, 32, 32)),
                     tl.load(_tile(p_inverse + lane * 2048, 32, 32, 32)), input_precision="ieee")
        tl.store(_tile(p_product + lane * 2048, 32, 32, 64), b_w)
    b_top = tl.load(_tile(p_eye, 32, 64, 64))
    for i in range(lanes):
        chunk = i // heads
        head = i % heads
        lane = chunk * HEADS + head
        o_first = first + chunk * (64 * TOKEN) + head.to(tl.int64) * o_head
        rows_lane = rows - chunk * 64
        b_a0 = tl.load(_tile(p_inverse + lane * 2048, 32, 32, 32))
        b_a1 = tl.load(_tile(p_inverse + lane * 2048 + 1024, 32, 32, 32))
        b_w = tl.load(_tile(p_product + lane * 2048, 32, 64, 64))
        _store_rows(out, o_first, tl.dot(b_a0, b_top, input_precision="ieee"), rows_lane, TOKEN, MASK)
        _store_rows(out, o_first + 32 * TOKEN, tl.dot(b_a1, b_w, input_precision="ieee"), rows_lane - 32, TOKEN, MASK)


@triton.jit
def _load_gate(p_gate, N: tl.constexpr, SPACE: tl.constexpr):
    """32 tokens of g or beta for N blocks, fp32 [N, 32]."""
    return tl.load(p_gate + tl.arange(0, N)[:, None] * SPACE + tl.arange(0, 32)[None, :])


@triton.jit
def _gated(p_s, N: tl.constexpr, b_gr, b_gc, b_beta):
    """-L of N blocks [block, row, column]: K K^T at p_s, log decay of rows and of columns and beta of rows [N, 32]."""
    b_strength = (b_gr - b_gr) - b_beta  # NaN where g is NaN or infinite: the clamp would hide it
    return tl.load(_blocks(p_s, N)) * _decay(b_gr[:, :, None] - b_gc[:, None, :]) * b_strength[:, :, None]


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
def _substitute(b_m, one, FIRST: tl.constexpr, LAST: tl.constexpr, N: tl.constexpr):
    """Steps of the forward substitution that turns N blocks -L [column, row, block] into (I + L)^-1, in place.

    Column j of -L is read once, at step j, and then belongs to the inverse; nothing on or above the diagonal is ever
    read, so masking waits until the end.
    """
    # Eight steps a group, each inside a loop of one round: the compiler carries the split over the two vector cores
    # up through about 11 chained slices and then gives up, both cores repeating all work; a loop is a new start.
    # `one` is a run-time 1, since a constant loop would be folded away.
    for group in tl.static_range(FIRST // 8, LAST // 8):
        for _ in range(one):
            for i in tl.static_range(8):
                if group * 8 + i >= 1 and group * 8 + i <= 30:
                    b_m = _step(b_m, group * 8 + i, N)
    return b_m


@triton.jit(do_not_specialize=["num_tasks", "k_head", "o_head", "one"])
def kkt_solve_kernel(
    k, g, beta, out, diagonal, cross, inverse, lower, product, gate, strength, eye, eye_g, eye_beta, tasks, num_tasks,
    k_head, o_head, one,
    K: tl.constexpr, KS: tl.constexpr, K_TOKEN: tl.constexpr, SHARE: tl.constexpr, HEADS: tl.constexpr,
    LANES: tl.constexpr, G_TOKEN: tl.constexpr, O_TOKEN: tl.constexpr,
    MASK: tl.constexpr,
):
    """One program a cube core, tasks dealt out in turn.

    tasks: int64 [num_tasks, 8]: first element in k, in g and beta, in out; tokens; heads; place of the first head among
    the SHARE that read one key head; two unused, so that a row is a cache line.
    diagonal, cross, inverse, lower, product, gate, strength: fp32 [programs, LANES * 2048, 1024, 2048, 1024, 2048, 64,
    64] between cube and vector cores, each an argument of its own so that the compiler orders only accesses that belong
    together. eye, eye_g, eye_beta: 64x64 identities, fp32 and of g's and beta's dtype.
    k_head, o_head and *_TOKEN: strides in elements. MASK: whether some task has fewer tokens or heads than lanes.
    """
    CHUNKS: tl.constexpr = LANES // HEADS
    BLOCKS: tl.constexpr = LANES * 2
    o = tl.arange(0, 32)
    m_strict = (o[:, None] > o[None, :])[None, :, :]
    b_eye = (o[:, None] == o[None, :]).to(tl.float32)[None, :, :]
    program = tl.program_id(0)
    stride = tl.num_programs(0)
    p_diagonal = diagonal + program * (LANES * 2048)
    p_cross = cross + program * (LANES * 1024)
    p_inverse = inverse + program * (LANES * 2048)
    p_lower = lower + program * (LANES * 1024)
    p_product = product + program * (LANES * 2048)
    p_gate = gate + program * (LANES * 64)
    p_strength = strength + program * (LANES * 64)

    p_t = tasks + program * 8
    rows = tl.load(p_t + 3).to(tl.int32)
    heads = tl.load(p_t + 4).to(tl.int32)
    _gates(g, p_gate, eye_g, tl.load(p_t + 1), rows, heads, one, HEADS, CHUNKS, G_TOKEN, MASK)
    _gates(beta, p_strength, eye_beta, tl.load(p_t + 1), rows, heads, one, HEADS, CHUNKS, G_TOKEN, MASK)
    _products(k, p_diagonal, p_cross, tl.load(p_t), rows, heads, tl.load(p_t + 5).to(tl.int32), k_head, K, KS, K_TOKEN,
              SHARE, HEADS, LANES, MASK)
    # While the vector cores work on the first task: see _merge.
    for lane in range(LANES):
        b_e = tl.load(_tile(eye, 32, 32, 64))
        tl.store(_tile(p_product + lane * 2048 + 32, 32, 32, 64), tl.dot(b_e, b_e, input_precision="ieee"))
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
            b_m = tl.permute(_gated(p_diagonal, BLOCKS, b_g, b_g, b_b), (2, 1, 0))
            b_m = _substitute(b_m, one, 0, 8, BLOCKS)
            # In between, when the cube has read the last task's: as the first step, the store waits 1.9 us for it.
            tl.store(_blocks(p_lower, LANES), _gated(p_cross, LANES, b_g1, b_g0, b_b1))
            b_m = _substitute(b_m, one, 8, 32, BLOCKS)
            tl.store(_blocks(p_inverse, BLOCKS), tl.where(m_strict, tl.permute(b_m, (2, 1, 0)), 0.0) + b_eye)

            # The next task's products stand before this task's merge: the vector cores then never wait for the cube.
            p_n = tasks + tl.minimum(task + stride, num_tasks - 1) * 8
            rows_next = tl.where(task + stride < num_tasks, tl.load(p_n + 3).to(tl.int32), 0)
            heads_next = tl.load(p_n + 4).to(tl.int32)
            _gates(g, p_gate, eye_g, tl.load(p_n + 1), rows_next, heads_next, one, HEADS, CHUNKS, G_TOKEN, MASK)
            _gates(beta, p_strength, eye_beta, tl.load(p_n + 1), rows_next, heads_next, one, HEADS, CHUNKS, G_TOKEN,
                   MASK)
            _products(k, p_diagonal, p_cross, tl.load(p_n), rows_next, heads_next, tl.load(p_n + 5).to(tl.int32),
                      k_head, K, KS, K_TOKEN, SHARE, HEADS, LANES, MASK)
            _merge(out, p_inverse, p_lower, p_product, eye, tl.load(p_t + 2), rows, heads, o_head, O_TOKEN, HEADS, MASK)
