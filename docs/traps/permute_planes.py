"""Reshapes beside a permute are moved into it: one transposition of a 16 x 1024 tile becomes two of three axes, which
go plane by plane. Kept two-dimensional from load to store, it is one.
"""
import re

import triton
import triton.language as tl

from . import look

TITLE_EN = "reshape around a permute"
TITLE_ZH = "permute前后的reshape"


@triton.jit
def turned(x, out, RESHAPED: tl.constexpr, N: tl.constexpr):
    o_n, o, o_e = tl.arange(0, N), tl.arange(0, 32), tl.arange(0, 1024)
    for task in range(tl.program_id(0), 96, tl.num_programs(0)):
        p_x, p_out = x + task * (N * 1024), out + task * (N * 1024)
        if RESHAPED:
            b_x = tl.load(p_x + o_n[:, None, None] * 1024 + o[None, :, None] * 32 + o[None, None, :]) * 2.0
            b_y = tl.reshape(tl.permute(tl.reshape(b_x, (N, 1024)), (1, 0)), (32, 32, N))
            tl.store(p_out + o[:, None, None] * (32 * N) + o[None, :, None] * N + o_n[None, None, :], b_y)
        else:
            b_x = tl.load(p_x + o_n[:, None] * 1024 + o_e[None, :]) * 2.0
            tl.store(p_out + o_e[:, None] * N + o_n[None, :], tl.permute(b_x, (1, 0)))


def _say(reshaped: bool) -> str:
    args = dict(x=look.fp32(96, 16, 1024), out=look.fp32(96, 16, 1024))
    one = look.launch(turned, args, dict(RESHAPED=reshaped, N=16), programs=48)
    found = re.findall(r"vtranspose ins.*?memref<([\dx]+)xf32.*?permutation = (\[.*?\])", look.compiled(one).hivm)
    return "transpositions: " + ", ".join(f"{shape} by {axes}" for shape, axes in found)


def bad() -> str:
    return _say(True)


def good() -> str:
    return _say(False)
