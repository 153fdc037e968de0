"""A tile of pointers with four axes, reshaped for a dot: the compiler's conversion to the cube's layout refuses it."""
import triton
import triton.language as tl

from . import look

TITLE_EN = "4-D tile of pointers feeding a dot"
TITLE_ZH = "四维指针块作为dot输入"


@triton.jit
def folded(k, s, FOLD: tl.constexpr):
    o, o_c, o_2 = tl.arange(0, 32), tl.arange(0, 128), tl.arange(0, 2)
    if FOLD:
        o_m = tl.arange(0, 16)
        p_k = k + o_2[:, None, None, None] * 8192 + o_2[None, :, None, None] * 2048 + (
            o_m[None, None, :, None] * 128 + o_c[None, None, None, :])
        b_k = tl.reshape(tl.load(p_k), (2, 32, 128))
    else:
        b_k = tl.load(k + o_2[:, None, None] * 8192 + o[None, :, None] * 128 + o_c[None, None, :])
    b_s = tl.dot(b_k, tl.permute(b_k, (0, 2, 1)))
    tl.store(s + o_2[:, None, None] * 1024 + o[None, :, None] * 32 + o[None, None, :], b_s)


def _launch(fold: bool):
    return look.launch(folded, dict(k=look.fp32(2, 64, 128), s=look.fp32(2, 32, 32)), dict(FOLD=fold))


def bad() -> str:
    return look.outcome(_launch(True))


def good() -> str:
    return look.outcome(_launch(False)) + " with three axes"
