"""Bytes of one memory with their history: who wrote and read each byte last, and which were never written.

Checks every access: inside the memory and its allocation, ordered after the conflicting accesses before it (vector
clocks), and carries "nothing wrote this" along with the data. What happens on a finding is execute.py's business.
"""
from __future__ import annotations

import numpy as np

from .floats import STORAGE, from_storage, to_storage
from .mlir_text import BITS
from .views import View

INDEX_BITS, PIPE_BITS = 32, 6
INDEX_MASK, PIPE_MASK = (1 << INDEX_BITS) - 1, (1 << PIPE_BITS) - 1


class Access:
    """One instruction's turn on its pipe. stamp: block, pipe and running number; clock: last finished per pipe."""

    __slots__ = ("instr", "pipe", "stamp", "clock", "block")

    def __init__(self, instr, block: int, pipe: int, index: int, clock: np.ndarray) -> None:
        self.instr, self.pipe, self.clock, self.block = instr, pipe, clock, block
        self.stamp = ((block + 1) << (INDEX_BITS + PIPE_BITS)) | (pipe << INDEX_BITS) | index


class Memory:
    """A byte-addressed memory. `report(kind, access, text, other stamp)` receives findings; shared: global memory;
    result: the caller sees its content, so that storing what nothing wrote is a fault already.

    Of several reads of a byte by one pipe only the last is kept, also across blocks: a later write that is not ordered
    after an earlier read of them is then found only through the last one.
    """

    def __init__(self, name: str, data: np.ndarray, report, written: bool = False, shared: bool = False,
                 result: bool = False) -> None:
        self.name, self.data, self.report, self.shared, self.result = name, data, report, shared, result
        self.unwritten = None if written else np.ones(len(data), bool)
        self.writer = np.zeros(len(data), np.int64)
        self.readers: dict[int, np.ndarray] = {}

    def __repr__(self) -> str:
        return self.name

    # the access checks ---------------------------------------------------------------------------------------------
    def _inside(self, view: View, access: Access) -> bool:
        if 0 in view.sizes:
            return False
        last = view.addr + view.bits
        for extent, stride in zip(view.sizes, view.strides, strict=True):
            last += (extent - 1) * stride * view.bits
        if view.addr >= max(0, view.base) and last <= min(view.limit + (-view.limit) % 8, 8 * len(self.data)):
            return True
        low, high = view.base // 8, min(view.limit // 8, len(self.data))
        self.report("out_of_bounds", access, f"accesses bytes {view.addr // 8} to {-(-last // 8)} of {self.name}; "
                                             f"its allocation is bytes {low} to {high}")
        return False

    def _region(self, view: View, array: np.ndarray) -> np.ndarray:
        """The bytes of a view in a per-byte array, one axis of bytes per element at the end."""
        size, item = view.bits // 8, array.itemsize
        if view.bits < 8:
            return array[view.addr // 8:-(-(view.addr + view.numel) // 8)]
        expect = 1
        for extent, stride in zip(reversed(view.sizes), reversed(view.strides), strict=True):
            if extent != 1 and stride != expect:
                break
            expect *= extent
        else:
            start = view.addr // 8
            return array[start:start + expect * size]
        return np.ndarray((*view.sizes, size), array.dtype, array, view.addr // 8 * item,
                          (*(s * size * item for s in view.strides), item))

    def _ordered(self, stamps: np.ndarray, access: Access) -> int:
        """0 when `access` comes after all of `stamps`, else one stamp that it does not come after."""
        first = int(stamps.flat[0])
        kinds = [first] if (stamps == first).all() else np.unique(stamps).tolist()
        for stamp in kinds:
            if not stamp or stamp == access.stamp:  # never touched, or the instruction itself (in place)
                continue
            block, pipe = (stamp >> (INDEX_BITS + PIPE_BITS)) - 1, (stamp >> INDEX_BITS) & PIPE_MASK
            if block != access.block or access.clock[pipe] < stamp & INDEX_MASK:
                return stamp
        return 0

    def note_read(self, view: View, access: Access) -> None:
        """Check a read against earlier writes and remember it."""
        late = self._ordered(self._region(view, self.writer), access)
        if late:
            self.report("race", access, f"reads {self.name} that is still being written", late)
        if access.pipe not in self.readers:
            self.readers[access.pipe] = np.zeros(len(self.data), np.int64)
        self._region(view, self.readers[access.pipe])[...] = access.stamp

    def note_write(self, view: View, access: Access, stored: np.ndarray | None = None) -> None:
        """Check a write against earlier reads and writes and remember it. Two vector cores that both store the same
        bytes to global memory (the work is repeated, not split) do no harm: `stored` tells."""
        region = self._region(view, self.writer)
        late = self._ordered(region, access)
        if late and not (self.shared and stored is not None and self._twin(late, access)
                         and np.array_equal(self._region(view, self.data), stored)):
            self.report("race", access, f"overwrites {self.name} that is still being written", late)
        for readers in self.readers.values():
            late = self._ordered(self._region(view, readers), access)
            if late:
                self.report("race", access, f"overwrites {self.name} that is still being read", late)
        region[...] = access.stamp

    def scratch(self, view: View, access: Access) -> None:
        """A temporary of an op: written and left with a content that nothing may rely on."""
        if self._inside(view, access):
            self.note_write(view, access)
            if self.unwritten is not None:
                self._region(view, self.unwritten)[...] = True

    @staticmethod
    def _twin(stamp: int, access: Access) -> bool:
        """Whether a stamp is of the other vector core of the same block."""
        block, pipe = (stamp >> (INDEX_BITS + PIPE_BITS)) - 1, (stamp >> INDEX_BITS) & PIPE_MASK
        return block == access.block and {pipe // 7, access.pipe // 7} == {1, 2}

    # data ----------------------------------------------------------------------------------------------------------
    def read(self, view: View, dtype: str, access: Access) -> tuple[np.ndarray, np.ndarray | None]:
        """(values, mask of elements that nothing wrote or None); zeros where the view leaves its memory."""
        if not self._inside(view, access):
            return np.zeros(view.sizes, np.float32 if dtype == "bf16" else STORAGE[dtype]), None
        self.note_read(view, access)
        if BITS[dtype] < 8:
            return self._bits(view, access)
        raw = self._region(view, self.data)
        values = (raw if raw.flags.c_contiguous else np.ascontiguousarray(raw)).view(STORAGE[dtype]).reshape(view.sizes)
        poison = None
        if self.unwritten is not None:
            bytes_ = self._region(view, self.unwritten)
            if bytes_.any():
                poison = bytes_.reshape(*view.sizes, view.bits // 8).any(-1)
        return from_storage(values, dtype).copy(), poison

    def _bits(self, view: View, access: Access):
        if view.strides != _dense(view.sizes) and view.numel != view.sizes[-1]:
            self.report("out_of_bounds", access, "reads an i1 view that is not contiguous: not modelled")
        first = view.addr % 8
        raw = np.unpackbits(self._region(view, self.data), bitorder="little")[first:first + view.numel]
        poison = None
        if self.unwritten is not None:
            bytes_ = self._region(view, self.unwritten)
            if bytes_.any():
                poison = np.repeat(bytes_, 8)[first:first + view.numel].reshape(view.sizes)
        return raw.astype(bool).reshape(view.sizes), poison

    def write(self, view: View, dtype: str, values, poison, access: Access) -> None:
        """Store values (broadcast to the view); poison marks elements that came from memory nothing wrote."""
        if not self._inside(view, access):
            return
        if BITS[dtype] < 8:
            self.note_write(view, access)
            region, first = self._region(view, self.data), view.addr % 8
            bits = np.unpackbits(region, bitorder="little")
            bits[first:first + view.numel] = np.broadcast_to(values, view.sizes).reshape(-1)
            region[...] = np.packbits(bits, bitorder="little")
            if self.unwritten is not None:
                self._region(view, self.unwritten)[...] = poison is not None and bool(np.any(poison))
            return
        stored = np.ascontiguousarray(np.broadcast_to(to_storage(values, dtype), view.sizes))
        region = self._region(view, self.data)
        stored = stored.view(np.uint8).reshape(region.shape)
        self.note_write(view, access, stored)
        region[...] = stored
        if self.unwritten is not None:
            target = self._region(view, self.unwritten)
            if poison is None:
                target[...] = False
            else:
                size = view.bits // 8
                target[...] = np.repeat(np.broadcast_to(poison, view.sizes).reshape(-1), size).reshape(target.shape)


def _dense(sizes) -> tuple[int, ...]:
    out, running = [], 1
    for extent in reversed(sizes):
        out.append(running)
        running *= extent
    return tuple(reversed(out))
