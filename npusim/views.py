"""Memory views as the program sees them: where a `memref` value points, and what stands for global buffers.

No data is touched here; memory.py holds bytes, cost.py prices transfers.
"""
from __future__ import annotations

from .errors import NpusimError

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
S, V, M, MTE1, MTE2, MTE3, FIX = range(len(PIPES))
ALL = -1
CORE_NAMES = ("cube", "vector0", "vector1")


class Meta:
    """Stands for a global buffer of `numel` elements without data, for estimates."""

    def __init__(self, numel: int) -> None:
        self.numel = int(numel)


class View:
    """A memref value. base, limit (its allocation) and addr are bit addresses in `mem`; sizes and strides are in
    elements of `bits` bits."""

    __slots__ = ("mem", "base", "limit", "addr", "sizes", "strides", "bits")

    def __init__(self, mem, base, limit, addr, sizes, strides, bits):
        self.mem = mem
        self.base = base
        self.limit = limit
        self.addr = addr
        self.sizes = sizes
        self.strides = strides
        self.bits = bits

    def __repr__(self) -> str:
        return f"View({self.mem}, bit {self.addr}, sizes {self.sizes}, strides {self.strides}, {self.bits} bit)"

    @property
    def numel(self) -> int:
        n = 1
        for extent in self.sizes:
            n *= extent
        return n


def collapse(view: View, groups) -> View:
    """`memref.collapse_shape`: each group of axes becomes one, with the stride of its innermost real axis."""
    sizes, strides = [], []
    for group in groups:
        extent, stride = 1, None
        for axis in reversed(group):
            if stride is None and view.sizes[axis] != 1:
                stride = view.strides[axis]
            extent *= view.sizes[axis]
        sizes.append(extent)
        strides.append(view.strides[group[-1]] if stride is None else stride)
    return View(view.mem, view.base, view.limit, view.addr, tuple(sizes), tuple(strides), view.bits)


def expand(view: View, groups, sizes) -> View:
    """`memref.expand_shape`: each axis is split into the group's axes, contiguous inside the axis."""
    strides = [0] * len(sizes)
    for axis, group in enumerate(groups):
        stride = view.strides[axis]
        for inner in reversed(group):
            strides[inner] = stride
            stride *= sizes[inner]
    return View(view.mem, view.base, view.limit, view.addr, tuple(sizes), tuple(strides), view.bits)


def k_slices(rows: int, columns: int, k: int, bytes_each: int) -> int:
    """How many pieces of k a product is made of: what fits half of L0A and of L0B, with 16 rows and columns padded."""
    side = -(-max(rows, columns, 16) // 16) * 16
    return max(1, -(-k // max(16, 32768 // bytes_each // side // 16 * 16)))


class Unknown:
    """A scalar read from memory that an estimate has no data for: arithmetic is fine, deciding on it is an error."""

    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        self.where = where

    def _same(self, *_):
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _same
    __mod__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = __neg__ = __lshift__ = __rshift__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __xor__ = __rxor__ = __truediv__ = __rtruediv__ = _same
    __hash__ = None

    def _refuse(self, *_):
        raise NpusimError(f"an address or a branch depends on the value loaded at {self.where}: "
                          "give that buffer's data (a numpy array) instead of Meta")

    __bool__ = __int__ = __index__ = __float__ = _refuse
