"""The fused kernel for Ascend A2/A3 (arch32): K K^T on the cube, gate and block inverses on the vector cores, merge and
output on the cube. How a call becomes tasks is in ascend.py.

A task is up to 32 (chunk, head) pairs, its lanes: HEADS adjacent heads of each of up to LANES / HEADS adjacent chunks.
A lane has two blocks of 32x32 on its diagonal and one below. On the vector cores the innermost axis runs over blocks: a
coefficient of all of them is a few 32-byte pieces, and a substitution step a few long instructions. The compiler gives
each vector core half of that axis.
"""
import triton
import triton.language as tl

from .ascend_cube import gates, merge, products
from .ascend_narrow import invert_narrow
from .ascend_scratch import GATE, INVERSE, LOWER, PRODUCT, SPACE, tile
from .ascend_wide import invert_wide


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
    keys, inverse, lower, product, gate, strength: fp32 [programs, LANES * SPACE, INVERSE, LOWER, PRODUCT, GATE, GATE]
    between cube and vector cores (ascend_scratch.py), each an argument of its own so that the compiler orders only
    accesses that belong together.
    eye, eye_g, eye_beta: 64x64 identities, fp32 and of g's and beta's dtype.
    k_head, o_head and *_TOKEN: strides in elements. MASK: whether some task has part of a chunk, fewer than HEADS heads
    or an odd number of lanes. HEADS is a power of 2 and at most LANES / 2, so that a lane too many (products, merge)
    has a place.
    """
    tl.static_assert(HEADS * 2 <= LANES)
    BLOCKS: tl.constexpr = LANES * 2
    program = tl.program_id(0)
    stride = tl.num_programs(0)
    p_keys = keys + program * (LANES * SPACE)
    p_inverse = inverse + program * (LANES * INVERSE)
    p_lower = lower + program * (LANES * LOWER)
    p_product = product + program * (LANES * PRODUCT)
    p_gate = gate + program * (LANES * GATE)
    p_strength = strength + program * (LANES * GATE)

    p_t = tasks + program * 8
    rows = tl.load(p_t + 3).to(tl.int32)
    heads = tl.load(p_t + 4).to(tl.int32)
    products(k, p_keys, tl.load(p_t), rows, heads, tl.load(p_t + 5).to(tl.int32), k_head, K, KS, K_TOKEN, SHARE, HEADS,
             MASK)
    gates(g, beta, p_gate, p_strength, eye_g, eye_beta, tl.load(p_t + 1), rows, heads, HEADS, G_TOKEN, MASK)
    # The 16x16 above the diagonal of every inverse: nothing else is ever stored there.
    o_h, o_n = tl.arange(0, 16), tl.arange(0, BLOCKS)
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

            if LANES == 32:  # one tile of all columns would not fit
                invert_wide(p_keys, p_gate, p_strength, p_lower, p_inverse, p_zero, eye, one, LANES)
            else:
                invert_narrow(p_keys, p_gate, p_strength, p_lower, p_inverse, one, LANES)

            # Under the first task's substitution: see merge.
            if task == program:
                for lane in range(LANES):
                    b_e = tl.load(tile(eye, 32, 32, 64))
                    b_e = tl.dot(b_e, b_e, input_precision="ieee")
                    tl.store(tile(p_product + lane * PRODUCT + 32, 32, 32, 64), b_e)
            # The next task's products stand before this task's merge: the vector cores then seldom wait for the cube.
            # (By estimate, K = 128 in bf16; with 256 channels of fp32 the cube is the limit.)
            p_n = tasks + tl.minimum(task + stride, num_tasks - 1) * 8
            rows_next = tl.where(task + stride < num_tasks, tl.load(p_n + 3).to(tl.int32), 0)
            heads_next = tl.load(p_n + 4).to(tl.int32)
            products(k, p_keys, tl.load(p_n), rows_next, heads_next, tl.load(p_n + 5).to(tl.int32), k_head, K, KS,
                     K_TOKEN, SHARE, HEADS, MASK)
            gates(g, beta, p_gate, p_strength, eye_g, eye_beta, tl.load(p_n + 1), rows_next, heads_next, HEADS,
                  G_TOKEN, MASK)
            merge(out, p_inverse, p_lower, p_product, eye, tl.load(p_t + 2), rows, heads, o_head, O_TOKEN, HEADS,
                  LANES, MASK)
