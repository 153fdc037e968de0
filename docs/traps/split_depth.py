"""A long chain of slices loses the 1:2 split of vector work, silently: both cores then repeat it all.

The pass that carries the split upwards is a greedy rewriter with a fixed number of rounds. A loop of one round, with a
bound that only the run knows, starts it anew. How long is measured here; in the full kernel it was shorter.
"""
import triton
import triton.language as tl

from . import look

TITLE_EN = "a long chain of extract_slice/insert_slice"
TITLE_ZH = "过长的extract_slice/insert_slice链"


@triton.jit
def _step(b_m, j: tl.constexpr, N: tl.constexpr):
    b_row = tl.extract_slice(b_m, (j, 0, 0), (1, 32, N), (1, 1, 1))
    b_below = tl.extract_slice(b_m, (j + 1, 0, 0), (31 - j, 32, N), (1, 1, 1))
    return tl.insert_slice(b_m, b_below + b_row, (j + 1, 0, 0), (31 - j, 32, N), (1, 1, 1))


@triton.jit(do_not_specialize=["one"])
def chain(k, s, out, one, STEPS: tl.constexpr, GROUP: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, 32)
    for lane in range(N):
        b_k = tl.load(k + lane * 4096 + o[:, None] * 128 + tl.arange(0, 128)[None, :])
        tl.store(s + lane * 1024 + o[:, None] * 32 + o[None, :], tl.dot(b_k, tl.trans(b_k)))
    o_n, o_e = tl.arange(0, N), tl.arange(0, 1024)
    b_m = tl.reshape(tl.permute(tl.load(s + o_n[:, None] * 1024 + o_e[None, :]), (1, 0)), (32, 32, N))
    if GROUP == 0:
        for j in tl.static_range(STEPS):
            b_m = _step(b_m, j, N)
    else:
        for group in tl.static_range(STEPS // GROUP):
            for _ in range(one):
                for j in tl.static_range(GROUP):
                    b_m = _step(b_m, group * GROUP + j, N)
    b_m = tl.permute(tl.reshape(b_m, (1024, N)), (1, 0))
    tl.store(out + o_n[:, None] * 1024 + o_e[None, :], b_m)


def _launch(steps: int, group: int):
    args = dict(k=look.fp32(16, 32, 128), s=look.fp32(16, 1024), out=look.fp32(16, 1024), one=1)
    return look.launch(chain, args, dict(STEPS=steps, GROUP=group, N=16))


def bad() -> str:
    deepest = max(n for n in range(4, 20, 1) if look.split(_launch(n, 0)).endswith("shared"))
    return f"{look.split(_launch(24, 0))} at 24 steps; last shared at {deepest}"


def good() -> str:
    return f"{look.split(_launch(24, 8))} at 24 steps in loops of 8"
