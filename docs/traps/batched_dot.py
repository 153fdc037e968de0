"""A batched dot is one loop of products, but its loads get a barrier of the load pipe between every two of the batch,
so they run one after another, and CV pipelining does not happen. A loop of two-dimensional dots loads ahead.
"""
import triton
import triton.language as tl

from . import look

TITLE_EN = "3-D (batched) dot against a loop of 2-D dots"
TITLE_ZH = "三维（批量）dot与二维dot循环"


@triton.jit
def products(k, s, BATCHED: tl.constexpr, N: tl.constexpr):
    o, o_c, o_n = tl.arange(0, 32), tl.arange(0, 128), tl.arange(0, N)
    for task in range(tl.program_id(0), 96, tl.num_programs(0)):
        p_k, p_s = k + task * (N * 4096), s + task * (N * 1024)
        if BATCHED:
            b_k = tl.load(p_k + o_n[:, None, None] * 4096 + o[None, :, None] * 128 + o_c[None, None, :])
            b_s = tl.dot(b_k, tl.permute(b_k, (0, 2, 1)))
            tl.store(p_s + o_n[:, None, None] * 1024 + o[None, :, None] * 32 + o[None, None, :], b_s)
        else:
            for lane in range(N):
                b_k = tl.load(p_k + lane * 4096 + o[:, None] * 128 + o_c[None, :])
                tl.store(p_s + lane * 1024 + o[:, None] * 32 + o[None, :], tl.dot(b_k, tl.trans(b_k)))


def _launch(batched: bool):
    args = dict(k=look.fp32(96, 16, 32, 128).bfloat16(), s=look.fp32(96, 16, 1024))
    return look.launch(products, args, dict(BATCHED=batched, N=16))


def _say(batched: bool) -> str:
    return (f"{look.microseconds(_launch(batched))}, "
            f"{look.count(_launch(batched), r'pipe_barrier.<PIPE_MTE2>.')} load barrier in the loop")


def bad() -> str:
    return _say(True)


def good() -> str:
    return _say(False)
