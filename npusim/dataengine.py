"""Instructions of one core on real data: operands are read, computed and written when their pipe reaches them.

Order is queues.py, the bytes and their history memory.py, the arithmetic semantics.py.
"""
from __future__ import annotations

import numpy as np

from .errors import NpusimError, UnsupportedError
from .memory import Access, Memory
from .mlir_text import BITS
from .queues import Queues
from .semantics import compute, from_fractal, product, to_fractal
from .views import FIX, MTE1, MTE2, M, S, View, k_slices


class DataEngine(Queues):
    """One core of one block; memories: its UB, L1 and L0C by address space."""

    def __init__(self, *order, memories: dict[str, Memory]) -> None:
        super().__init__(*order)
        self.memories = memories

    def memory(self, space: str) -> Memory:
        return self.memories[space]

    def op(self, instr, ins, outs, temps) -> None:
        if instr.unit_flag:
            self.after(M, FIX)
        self.push(instr.pipe, lambda state: self.perform(instr, ins, outs, temps))

    def perform(self, instr, ins, outs, temps) -> None:
        access = self.begin(instr, instr.pipe)
        if len(outs) != 1:
            raise UnsupportedError(f"line {instr.line}: {instr.name} with {len(outs)} outputs is not modelled")
        out, out_type = outs[0], instr.outs[0]
        inputs, poisons = [], []
        for value, kind in zip(ins, instr.ins or ("index",) * len(ins), strict=True):
            data, poison = (value.mem.read(value, kind.dtype, access) if isinstance(value, View) else (value, None))
            inputs.append(data)
            poisons.append(poison)
        for temp in temps:
            temp.mem.scratch(temp, access)
        if 0 in out.sizes:
            return
        if instr.name == "nd2nz":
            if inputs[0].ndim != 2 or len(out.sizes) != 4:
                raise UnsupportedError(f"line {instr.line}: nd2nz of {inputs[0].ndim} axes is not modelled by npusim")
            rows, columns = out.sizes[1] * out.sizes[2], out.sizes[0] * out.sizes[3]
            if inputs[0].shape[0] > rows or inputs[0].shape[1] > columns:
                self.faults.report("out_of_bounds", access, f"puts {inputs[0].shape} elements into a tile of {out.mem} "
                                                            f"that holds ({rows}, {columns})")
                return
            values = to_fractal(inputs[0], out.sizes)
            poison = None if poisons[0] is None else to_fractal(poisons[0], out.sizes)
            self.fractal_write(out, out_type.dtype, values, poison, inputs[0].shape[0], access)
            return
        if instr.name == "fixpipe":
            values, poison = self.fixpipe(instr, inputs[0], poisons[0], out)
        else:
            if instr.name == "load" and instr.attrs.get("left_padding_num", "0") != "0":
                raise UnsupportedError(f"line {instr.line}: load with left padding is not modelled by npusim")
            try:
                values, poison = compute(instr, inputs, poisons, out)
            except ValueError as error:  # numpy on shapes that do not go together
                raise NpusimError(f"line {instr.line}: {instr.name} on {[np.shape(x) for x in inputs]} into "
                                  f"{out.sizes}: {error}") from None
        if poison is not None and poison.any() and out.mem.result:
            self.faults.report("poison_read", access,
                               f"stores {int(poison.sum())} elements to {out.mem.name} that nothing wrote before")
        out.mem.write(out, out_type.dtype, values, poison, access)

    def fractal_write(self, out: View, dtype: str, values, poison, rows: int, access: Access) -> None:
        """nd2nz writes the rows that it has; the rest of the last fractal stays as it was."""
        whole = rows // 16
        parts = [(0, whole, 16)] if whole else []
        parts += [(whole, 1, rows % 16)] if rows % 16 else []
        for start, blocks, lines in parts:
            sizes = (out.sizes[0], blocks, lines, out.sizes[3])
            part = View(out.mem, out.base, out.limit, out.addr + start * out.strides[1] * out.bits, sizes,
                        out.strides, out.bits)
            where = (slice(None), slice(start, start + blocks), slice(0, lines))
            part.mem.write(part, dtype, values[where], None if poison is None else poison[where], access)

    def fixpipe(self, instr, values, poison, out: View):
        if "enable_nz2nd" not in instr.attrs and "nz2nd" not in instr.attrs.get("dma_mode", "").lower():
            raise UnsupportedError(f"line {instr.line}: fixpipe without nz2nd is not modelled by npusim")
        rows, columns = out.sizes[-2:]
        matrix = from_fractal(values)[:rows, :columns]
        if "relu" in instr.attrs.get("pre_relu", "").lower() and "NO" not in instr.attrs["pre_relu"]:
            matrix = np.maximum(matrix, 0)
        poison = None if poison is None else from_fractal(poison)[:rows, :columns].reshape(out.sizes)
        return matrix.reshape(out.sizes), poison

    def mmad(self, instr, a, b, init, m, k, n, c, sync) -> None:
        """Two instructions: L1 to L0 on MTE1, the product on M, with the waits and sets of the library between."""
        wait_a, wait_b, set_a, set_b, turn, *back = sync
        kind, loaded = instr.ins[0].dtype, []
        slices = k_slices(m, n, k, BITS[kind] // 8)

        def load(state) -> None:
            access = self.begin(instr, MTE1)
            loaded.extend((a.mem.read(a, kind, access), b.mem.read(b, kind, access)))

        def multiply(state) -> None:
            access = self.begin(instr, M)
            (a_values, a_poison), (b_values, b_poison) = loaded
            self.accumulate(instr, a_values, a_poison, b_values, b_poison, init, k, n, c, access)

        for event in (wait_a, wait_b):
            if event != -1:
                self.push(MTE1, None, (MTE2, MTE1, event))
        if instr.unit_flag:
            self.after(FIX, M)
        for piece in range(slices):
            event = back[(piece + (turn * slices if turn != -1 else 0)) % 2]
            if event != -1:
                self.push(MTE1, None, (M, MTE1, event))
            if piece == 0:
                self.push(MTE1, load)
            self.after(MTE1, M)
            if piece == slices - 1:
                self.push(M, multiply)
                self.barrier(instr, M)
            if event != -1:
                self.push(M, lambda state, event=event: self.signal((M, MTE1, event)))
        for event in (set_a, set_b):
            if event != -1:
                self.push(MTE1, lambda state, event=event: self.signal((MTE1, MTE2, event)))
        if -1 in back:  # without events of its own, the library waits for the product before it returns
            self.after(M, MTE1)

    def accumulate(self, instr, a, a_poison, b, b_poison, init, k, n, c: View, access: Access) -> None:
        rows = c.sizes[1] * c.sizes[2]
        a, b = from_fractal(a), from_fractal(b)
        result = np.zeros((rows, c.sizes[0] * c.sizes[3]), np.float32)
        value = product(a, b, rows, k, n, instr)
        result[:value.shape[0], :value.shape[1]] = value
        poison = None
        if a_poison is not None or b_poison is not None:
            blank = np.zeros((), bool)
            pa = blank if a_poison is None else from_fractal(a_poison)
            pb = blank if b_poison is None else from_fractal(b_poison)
            pa = np.broadcast_to(pa, a.shape).T if "a_transpose" in instr.attrs else np.broadcast_to(pa, a.shape)
            pb = np.broadcast_to(pb, b.shape).T if "b_transpose" in instr.attrs else np.broadcast_to(pb, b.shape)
            poison = np.zeros(result.shape, bool)
            mark = pa[:rows, :k].any(1)[:, None] | pb[:k, :n].any(0)[None, :]
            poison[:mark.shape[0], :mark.shape[1]] = mark
            poison = to_fractal(poison, c.sizes)
        kind = instr.outs[0].dtype
        if not init:
            before, before_poison = c.mem.read(c, kind, access)
            result = result + from_fractal(before)
            if before_poison is not None:
                poison = before_poison if poison is None else poison | before_poison
        c.mem.write(c, kind, to_fractal(result, c.sizes), poison, access)

    def scalar_access(self, instr) -> Access:
        self.steps += 1
        state = self.pipes[S]
        state.clock = self.issued
        access = self.begin(instr, S)
        self.issued = self.issued.copy()
        self.issued[self.first] = state.count  # the scalar pipe finishes one access before the next
        return access

    def scalar_load(self, instr, view: View, where):
        access = self.scalar_access(instr)
        values, poison = view.mem.read(_element(view, where), instr.ins[0].dtype, access)
        if poison is not None and poison.any():
            self.faults.report("poison_read", access, f"loads a scalar of {view.mem.name} that nothing wrote")
        return values.reshape(-1)[0].item()

    def scalar_store(self, instr, value, view: View, where) -> None:
        access = self.scalar_access(instr)
        view.mem.write(_element(view, where), instr.outs[0].dtype, np.asarray(value), None, access)


def _element(view: View, where) -> View:
    addr = view.addr + view.bits * sum(i * s for i, s in zip(where, view.strides, strict=True))
    return View(view.mem, view.base, view.limit, addr, (1,), (1,), view.bits)
