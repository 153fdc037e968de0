"""A vector part that stores to the pointer argument it loads from is not divided over the two cores: the compiler
cannot tell the places apart. The same memory through two arguments is divided.
"""
import triton
import triton.language as tl

from . import look

TITLE_EN = "storing to the pointer argument that is loaded"
TITLE_ZH = "写回所读取的同一指针参数"


@triton.jit
def twice(k, s, out, N: tl.constexpr):
    o, o_n, o_e = tl.arange(0, 32), tl.arange(0, N), tl.arange(0, 1024)
    for lane in range(N):
        b_k = tl.load(k + lane * 4096 + o[:, None] * 128 + tl.arange(0, 128)[None, :])
        tl.store(s + lane * 1024 + o[:, None] * 32 + o[None, :], tl.dot(b_k, tl.trans(b_k)))
    o_at = o_n[:, None] * 1024 + o_e[None, :]
    tl.store(out + o_at, tl.load(s + o_at) * 2.0)


@triton.jit
def in_place(k, s, N: tl.constexpr):
    o, o_n, o_e = tl.arange(0, 32), tl.arange(0, N), tl.arange(0, 1024)
    for lane in range(N):
        b_k = tl.load(k + lane * 4096 + o[:, None] * 128 + tl.arange(0, 128)[None, :])
        tl.store(s + lane * 1024 + o[:, None] * 32 + o[None, :], tl.dot(b_k, tl.trans(b_k)))
    o_at = o_n[:, None] * 1024 + o_e[None, :]
    tl.store(s + o_at, tl.load(s + o_at) * 2.0)


def bad() -> str:
    return look.split(look.launch(in_place, dict(k=look.fp32(16, 32, 128), s=look.fp32(16, 1024)), dict(N=16)))


def good() -> str:
    args = dict(k=look.fp32(16, 32, 128), s=look.fp32(16, 1024), out=look.fp32(16, 1024))
    return look.split(look.launch(twice, args, dict(N=16)))
