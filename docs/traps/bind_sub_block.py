"""`tl.parallel(..., bind_sub_block=True)` says that a loop is to be divided over the two vector cores. In triton-ascend
3.2.0 the mark is in TTIR and gone in linalg, so nothing is divided by it. What is divided is what the compiler divides.
"""
import triton
import triton.language as tl

from . import look

TITLE_EN = "tl.parallel(bind_sub_block=True)"
TITLE_ZH = "tl.parallel(bind_sub_block=True)"


@triton.jit
def halves(k, s, out, EXPLICIT: tl.constexpr):
    o = tl.arange(0, 32)
    b_k = tl.load(k + o[:, None] * 128 + tl.arange(0, 128)[None, :])
    tl.store(s + o[:, None] * 32 + o[None, :], tl.dot(b_k, tl.trans(b_k)))
    if EXPLICIT:
        for half in tl.parallel(0, 2, bind_sub_block=True):
            o_r = half * 16 + tl.arange(0, 16)
            tl.store(out + o_r[:, None] * 32 + o[None, :], tl.load(s + o_r[:, None] * 32 + o[None, :]) * 2.0)
    else:
        tl.store(out + o[:, None] * 32 + o[None, :], tl.load(s + o[:, None] * 32 + o[None, :]) * 2.0)


def _launch(explicit: bool):
    args = dict(k=look.fp32(32, 128), s=look.fp32(32, 32), out=look.fp32(32, 32))
    return look.launch(halves, args, dict(EXPLICIT=explicit))


def bad() -> str:
    kept = "bind_sub_block" in look.linalg(_launch(True))
    return f"attribute in linalg: {'yes' if kept else 'no'}; {look.split(_launch(True))}"


def good() -> str:
    return f"left to the compiler; {look.split(_launch(False))}"
