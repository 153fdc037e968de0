"""tl.minimum and tl.maximum without propagate_nan=ALL become comparisons and selections: several passes over the tile
instead of one instruction each.
"""
import triton
import triton.language as tl

from . import look

TITLE_EN = "tl.minimum/maximum without propagate_nan"
TITLE_ZH = "未指定propagate_nan的tl.minimum/maximum"


@triton.jit
def clamp(x, out, ALL: tl.constexpr):
    o = tl.arange(0, 4096)
    b_x = tl.load(x + o)
    if ALL:
        b_x = tl.maximum(b_x, -50.0, propagate_nan=tl.PropagateNan.ALL)
        b_x = tl.minimum(b_x, 50.0, propagate_nan=tl.PropagateNan.ALL)
    else:
        b_x = tl.minimum(tl.maximum(b_x, -50.0), 50.0)
    tl.store(out + o, b_x)


def _say(with_nan: bool) -> str:
    one = look.launch(clamp, dict(x=look.fp32(4096), out=look.fp32(4096)), dict(ALL=with_nan), programs=1)
    found = [look.count(one, pattern) for pattern in (r"hir\.v(?:min|max)\b", r"hir\.vcmp\b", r"hir\.vsel\b")]
    return "{} min/max, {} compare, {} select".format(*found)


def bad() -> str:
    return _say(False)


def good() -> str:
    return _say(True)
