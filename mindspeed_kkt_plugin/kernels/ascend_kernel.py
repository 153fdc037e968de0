"""The fused kernel for Ascend A2/A3 (arch32): K K^T on the cube, gate and block inverses on the vector cores, merge and
output on the cube. How a call becomes tasks is in ascend.py.

A task is up to 16 (chunk, head) pairs, its lanes: adjacent chunks of one head, or (HEADS) adjacent heads of one chunk.
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
def _products(k, p_diagonal, p_cross, first, lanes, rows, phase, k_lane, K: tl.constexpr, KS: tl.constexpr,
              TOKEN: tl.constexpr, SHARE: tl.constexpr, HEADS: tl.constexpr, MASK: tl.constexpr):
    """K K^T of every lane's 64 tokens, as two diagonal blocks and the one below; zeros for lanes that are not there,
    since the vector cores invert all 16."""
    if MASK:
        loops = tl.minimum(lanes, 1) * 16
    else:
        loops = lanes
    for lane in range(loops):
        if MASK:
            rows_lane = tl.where(lane < lanes, rows, 0)
        else:
            rows_lane = rows
        k_first = first + ((lane + phase) // SHARE).to(tl.int64) * k_lane
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
        tl.store(_tile(p_diagonal + _place(lane, 0, HEADS), 32, 32, 32), b_s0)
        tl.store(_tile(p_diagonal + _place(lane, 1, HEADS), 32, 32, 32), b_s1)
        tl.store(_tile(p_cross + lane * 1024, 32, 32, 32), b_sx)


@triton.jit
def _store_block(out, first, b_a, rows, TOKEN: tl.constexpr, MASK: tl.constexpr):
    """A 32x32 block of the result, as out's dtype."""
    p_o = _tile(out + first, 32, 32, TOKEN)
    if MASK:
        tl.store(p_o, b_a.to(out.dtype.element_ty), mask=(tl.arange(0, 32) < rows)[:, None])
    else:
        tl.store(p_o, b_a.to(out.dtype.element_ty))


@triton.jit
def _merge(out, p_inverse, p_lower, p_product, p_eye, first, lanes, rows, o_lane, TOKEN: tl.constexpr,
           HEADS: tl.constexpr, MASK: tl.constexpr):
    """The result of every lane: A0, zero, A1 (-L) A0 and A1. The cube writes all of it, products with the identity
    where nothing is left to do: its output path rounds to out's dtype and skips tail rows."""
    for lane in range(lanes):
        b_w = tl.dot(tl.load(_tile(p_lower + lane * 1024, 32, 32, 32)),
                     tl.load(_tile(p_inverse + _place(lane, 0, HEADS), 32, 32, 32)), input_precision="ieee")
        tl.store(_tile(p_product + lane * 1024, 32, 32, 32), b_w)
    for lane in range(lanes):
        o_first = first + lane.to(tl.int64) * o_lane
        o_next = o_first + 32 * TOKEN
        b_eye = tl.load(_tile(p_eye, 32, 32, 32))
        b_zero = tl.load(_tile(p_eye + 1024, 32, 32, 32))
        b_a0 = tl.load(_tile(p_inverse + _place(lane, 0, HEADS), 32, 32, 32))
        b_a1 = tl.load(_tile(p_inverse + _place(lane, 1, HEADS), 32, 32, 32))
        b_w = tl.load(_tile(p_product + lane * 1024, 32, 32, 32))
        _store_block(out, o_first, tl.dot(b_a0, b_eye, input_precision="ieee"), rows, TOKEN, MASK)
        _store_block(out, o_first + 32, tl.dot(b_a0, b_zero, input_precision="ieee"), rows, TOKEN, MASK)
        _store_block(out, o_next, tl.dot(b_a1, b_w, input_precision="ieee"), rows - 32, TOKEN, MASK)
        _store_block(out, o_next + 32, tl.dot(b_a1, b_eye, input_precision="ieee"), rows - 32, TOKEN, MASK)


@triton.jit
def _products_of(k, diagonal, cross, tasks, num_tasks, task, slot, k_lane, K: tl.constexpr, KS: tl.constexpr,
                 TOKEN: tl.constexpr, SHARE: tl.constexpr, HEADS: tl.constexpr, MASK: tl.constexpr):
    """The products of a task, into a slot; nothing when there is no such task."""
    p_t = tasks + tl.minimum(task, num_tasks - 1) * 8
    lanes = tl.where(task < num_tasks, tl.load(p_t + 4).to(tl.int32), 0)
    _products(k, diagonal + slot * (32 * 1024), cross + slot * (16 * 1024), tl.load(p_t), lanes,
              tl.load(p_t + 5).to(tl.int32), tl.load(p_t + 6).to(tl.int32), k_lane, K, KS, TOKEN, SHARE, HEADS, MASK)


@triton.jit
def _place(lane, half: tl.constexpr, HEADS: tl.constexpr):
    """Where a lane's diagonal block stands among the 32: beside its other half, or 16 blocks from it."""
    if HEADS:
        return (half * 16 + lane) * 1024
    return (lane * 2 + half) * 1024


@triton.jit
def _load_gate(g, first, head, lanes, rows, N: tl.constexpr, HEADS: tl.constexpr, WINDOW: tl.constexpr,
               SPACE: tl.constexpr, TOKEN: tl.constexpr, MASK: tl.constexpr):
    """32 tokens of g or beta for N lanes (or half chunks), fp32 [N, 32].

    HEADS: the lanes are adjacent heads. Else they lie SPACE elements apart, and WINDOW adjacent heads of every token
    are read to keep one, since pieces of 4 bytes would cost a transfer each.
    """
    o_t, o_n = tl.arange(0, 32), tl.arange(0, N)
    if HEADS:
        p_g = g + first + o_t[:, None] * TOKEN + o_n[None, :]
        if MASK:
            b_g = tl.load(p_g, mask=(o_t < rows)[:, None] & (o_n < lanes)[None, :], other=0.0)
        else:
            b_g = tl.load(p_g)
        return tl.permute(b_g.to(tl.float32), (1, 0))
    o_h = tl.arange(0, WINDOW)
    p_g = g + first + o_n[:, None, None] * SPACE + o_t[None, :, None] * TOKEN + o_h[None, None, :]
    return tl.sum(tl.load(p_g).to(tl.float32) * (o_h == head).to(tl.float32)[None, None, :], 2)


@triton.jit
def _gated(p_s, N: tl.constexpr, b_gr, b_gc, b_beta):
    """-L of N blocks [block, row, column]: K K^T at p_s, log decay of rows and of columns and beta of rows [N, 32]."""
    b_m = 0.0 - tl.load(_blocks(p_s, N))
    return b_m * _decay(b_gr[:, :, None] - b_gc[:, None, :]) * b_beta[:, :, None]


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
def _invert(b_m, p_a, m_strict, b_eye, one, N: tl.constexpr):
    """(I + L)^-1 of N diagonal 32x32 blocks b_m = -L [block, row, column], stored at p_a.

    Forward substitution in place. Column j of -L is read once, at step j, and then belongs to the inverse; nothing on
    or above the diagonal is ever read, so masking waits until the end.
    """
    b_m = tl.permute(b_m, (2, 1, 0))
    # Eight steps a group, each inside a loop of one round: the compiler carries the split over the two vector cores
    # up through about 11 chained slices and then gives up, both cores repeating all work; a loop is a new start.
    # `one` is a run-time 1, since a constant loop would be folded away.
    for group in tl.static_range(4):
        for _ in range(one):
            for i in tl.static_range(8):
                if group * 8 + i >= 1 and group * 8 + i <= 30:
                    b_m = _step(b_m, group * 8 + i, N)
    tl.store(_blocks(p_a, N), tl.where(m_strict, tl.permute(b_m, (2, 1, 0)), 0.0) + b_eye)


@triton.jit(do_not_specialize=["num_tasks", "k_lane", "o_lane", "one"])
def kkt_solve_kernel(
    k, g, beta, out, diagonal, cross, inverse, lower, product, eye, tasks, num_tasks, k_lane, o_lane, one,
    K: tl.constexpr, KS: tl.constexpr, K_TOKEN: tl.constexpr, SHARE: tl.constexpr,
    WINDOW: tl.constexpr, G_SPACE: tl.constexpr, G_TOKEN: tl.constexpr, O_TOKEN: tl.constexpr,
    HEADS: tl.constexpr, MASK: tl.constexpr,
):
    """One program a cube core, tasks dealt out in turn.

    tasks: int64 [num_tasks, 8]: first element in k, in g and beta, in out; head of the window; lanes; rows; place of
    the first lane among the SHARE that read one key head; one unused, so that a row is a cache line.
    diagonal, cross, inverse, lower, product: fp32 [programs, 32 or 16, 32, 32] between cube and vector cores, each an
    argument of its own so that the compiler orders only accesses that belong together. eye: identity, then zeros.
    k_lane, o_lane and *_TOKEN: strides in elements; G_SPACE: of half chunks.
    """
    o = tl.arange(0, 32)
    m_strict = (o[:, None] > o[None, :])[None, :, :]
    b_eye = (o[:, None] == o[None, :]).to(tl.float32)[None, :, :]
    program = tl.program_id(0)
    stride = tl.num_programs(0)
    p_product = product + program * (16 * 1024)

    _products_of(k, diagonal, cross, tasks, num_tasks, program, program + program // num_tasks, k_lane, K, KS,
                 K_TOKEN, SHARE, HEADS, MASK)
    for task in range(program, num_tasks, stride):
        # task // num_tasks is 0. It hides from the compiler that all tasks use the same scratch: its pipelining of the
        # task loop would otherwise take the buffers for doubled ones and order cube and vector cores two tasks apart.
        slot = program + task // num_tasks
        p_diagonal = diagonal + slot * (32 * 1024)
        p_cross = cross + slot * (16 * 1024)
        p_inverse = inverse + slot * (32 * 1024)
        p_lower = lower + slot * (16 * 1024)
        p_t = tasks + task * 8
        g_first = tl.load(p_t + 1)
        g_next = g_first + 32 * G_TOKEN
        head = tl.load(p_t + 3).to(tl.int32)
        lanes = tl.load(p_t + 4).to(tl.int32)
        rows = tl.load(p_t + 5).to(tl.int32)

        b_g0 = _load_gate(g, g_first, head, lanes, rows, 16, HEADS, WINDOW, 2 * G_SPACE, G_TOKEN, MASK)
        b_g1 = _load_gate(g, g_next, head, lanes, rows - 32, 16, HEADS, WINDOW, 2 * G_SPACE, G_TOKEN, MASK)
        b_b1 = _load_gate(beta, g_next, head, lanes, rows - 32, 16, HEADS, WINDOW, 2 * G_SPACE, G_TOKEN, MASK)
        tl.store(_blocks(p_lower, 16), _gated(p_cross, 16, b_g1, b_g0, b_b1))
        if HEADS:
            b_b0 = _load_gate(beta, g_first, head, lanes, rows, 16, HEADS, WINDOW, 2 * G_SPACE, G_TOKEN, MASK)
            _invert(_gated(p_diagonal, 16, b_g0, b_g0, b_b0), p_inverse, m_strict, b_eye, one, 16)
            b_m = _gated(p_diagonal + 16 * 1024, 16, b_g1, b_g1, b_b1)
            _invert(b_m, p_inverse + 16 * 1024, m_strict, b_eye, one, 16)
        else:
            b_g = _load_gate(g, g_first, head, lanes, rows, 32, HEADS, WINDOW, G_SPACE, G_TOKEN, MASK)
            b_b = _load_gate(beta, g_first, head, lanes, rows, 32, HEADS, WINDOW, G_SPACE, G_TOKEN, MASK)
            _invert(_gated(p_diagonal, 32, b_g, b_g, b_b), p_inverse, m_strict, b_eye, one, 32)

        # The next task's products stand before this task's merge: the vector cores then hardly wait for the cube.
        _products_of(k, diagonal, cross, tasks, num_tasks, task + stride, slot, k_lane, K, KS, K_TOKEN, SHARE,
                     HEADS, MASK)
        _merge(out, p_inverse, p_lower, p_product, eye, tl.load(p_t + 2), lanes, rows, o_lane, O_TOKEN, HEADS, MASK)
