"""How long one instruction keeps its pipe busy and when its result is there, in cycles, from shapes alone.

The numbers are machine.py's; how many hardware instructions an op expands to follows the op library of AscendNPU-IR
(bishengir/lib/Template). Queues, waits and overlap are time.py's business.
"""
from __future__ import annotations

from math import ceil, gcd, log2, prod

from .errors import UnsupportedError
from .machine import Machine
from .mlir_text import BITS
from .views import View, k_slices

# Own delay of an instruction after its last repeat; SLOW: cycles a repeat where not 1 (hicann/pypto VEC_VALU_TAB).
DELAY = {"vadd": 6, "vsub": 6, "vmul": 7, "vmax": 4, "vmin": 4, "vdiv": 13, "vexp": 12, "vln": 14, "vsqrt": 13,
         "vrsqrt": 5, "vrec": 5, "vabs": 4, "vrelu": 4, "vcmp": 6, "vsel": 6, "vnot": 4, "vor": 4, "vand": 4,
         "vxor": 4, "vcast": 4, "vshl": 4, "vshr": 4}
SLOW = {"vexp": 2, "vdiv": 2, "vln": 2, "vsqrt": 2}
RARE = {"vcumsum": 0, "vmod": 5, **dict.fromkeys(("vflip", "vgather", "vpad", "vconcat", "vinterleave",
                                                   "vdeinterleave"), 7)}  # vreducev2 takes 7 cycles a repeat
SCALAR_LOOP = 12  # cycles an element where the library falls back to scalar loads, one operation and a store


class Cost:
    """busy: cycles the pipe is taken; after: further cycles until the result is there; read, written: GM bytes."""

    __slots__ = ("busy", "after", "read", "written")

    def __init__(self, busy: float, after: float, read: int = 0, written: int = 0) -> None:
        self.busy, self.after, self.read, self.written = busy, after, read, written


class CostModel:
    """Costs on one machine."""

    def __init__(self, machine: Machine) -> None:
        self.m = machine
        self.known: dict = {}  # instruction -> shapes and addresses -> Cost
        self.vector_after = machine.vector_latency.value
        self.head, self.step = machine.vector_head.value, machine.vector_step.value

    # vector --------------------------------------------------------------------------------------------------------
    def vector(self, instr, ins, outs) -> Cost:
        """A HIVM vector op on UB."""
        kind, out = instr.name, outs[0]
        tiles = [v for v in (*ins, *outs) if isinstance(v, View)]
        dtypes = {t.dtype for t in (*instr.ins, *instr.outs) if not isinstance(t, str)}
        if kind in DELAY and ("i64" in dtypes or any(_unaligned(v) for v in tiles)):
            return Cost(SCALAR_LOOP * out.numel, self.vector_after)
        if kind == "vreduce":
            return self.reduce(ins[0], _axes(instr.attrs["reduce_dims"]))
        if kind == "vtranspose":
            return self.transpose(ins[0], out, _axes(instr.attrs["permutation"]))
        if kind == "vbrc":
            return self.broadcast(ins[0], out, _axes(instr.attrs.get("broadcast_dims", "[]")))
        if kind == "varange":
            steps = max(1, ceil(log2(max(2, out.numel))) - 2)
            return Cost(self.passes(out.sizes, [out]) + steps * self.step, steps * (self.vector_after + 6))
        if kind == "copy":
            rows, row = _rows(out)
            return Cost(rows * max(1, ceil(row / self.m.ub_move_bytes.value)) + self.head, 12)
        if kind in RARE:
            slow = ins[0].sizes[0] if kind == "vcumsum" else RARE[kind]
            return Cost(slow * self.passes(out.sizes, [out]) + self.head, self.vector_after + 7)
        if kind not in DELAY:
            raise UnsupportedError(f"line {instr.line}: vector op {kind!r} has no cost in npusim")
        spread, after = self.inline_broadcast(instr, ins, out)
        busy = self.passes(out.sizes, tiles, SLOW.get(kind, 1))
        if kind == "vcast" and "i1" in dtypes:
            busy = 2 * busy + 2 * self.head  # duplicate the constants, then select
        return Cost(self.head + busy + spread, self.vector_after + DELAY[kind] + after)

    def passes(self, sizes, tiles, slow: int = 1) -> float:
        """Cycles of the repeats that an elementwise op over `sizes` takes.

        Axes that are contiguous in every operand are one. Two axes are one instruction per 256 bytes of a row or per
        row, whichever are fewer; a row narrower than 256 bytes wastes the rest of its repeat; further axes are loops.
        """
        axes = _merged(sizes, tiles)
        bits = max(v.bits for v in tiles)
        per_repeat = self.m.vector_bytes.value * 8
        row, rows, loops = axes[-1][0] * bits, axes[-2][0] if len(axes) > 1 else 1, prod(n for n, _ in axes[:-2])
        if len(axes) == 1:
            repeats, instrs = ceil(row / per_repeat), ceil(row / per_repeat / 255)
        else:
            whole = int(row // per_repeat)
            repeats = rows * ceil(row / per_repeat)
            instrs = min(whole, rows) + (row % per_repeat > 0)
        cycles = max(repeats * max(slow, self.conflict(tiles)), instrs * self.step if len(axes) > 1 else 0)
        return loops * cycles

    def conflict(self, tiles) -> int:
        """2 where two operands of a repeat lie in the same bank groups of UB, so that their reads queue; else 1."""
        read = [v for v in tiles[:-1] if v.bits >= 8]
        if len(read) < 2:
            return 1
        groups = int(self.m.bank_groups.value)
        apart = (read[0].addr // 256 - read[1].addr // 256) % groups
        blocks = min(8, *(max(1, ceil(_rows(v)[1] / 32)) for v in read))
        return 2 if min(apart, groups - apart) < blocks else 1

    def inline_broadcast(self, instr, ins, out: View) -> tuple[float, float]:
        """A last-axis broadcast inside an elementwise op: brcb of the narrow operand, then one dependent pass."""
        axes = _axes(instr.attrs.get("broadcast", "[]"))
        if not axes or len(out.sizes) - 1 not in axes:
            return 0.0, 0.0
        blocks = sum(v.numel for v in ins if isinstance(v, View) and v.sizes[-1] == 1)
        return self.head + blocks * 32 / 128, self.vector_after + 4

    def broadcast(self, src, out: View, axes) -> Cost:
        """A scalar is one pass; a last axis brcb, then copies of half a repeat a cycle; other axes copies of rows."""
        if not isinstance(src, View) or not axes:
            return Cost(self.head + self.passes(out.sizes, [out]), self.vector_after + 4)
        if len(out.sizes) - 1 in axes:
            blocks = src.numel * 32 / 128
            return Cost(2 * self.head + blocks + self.passes(out.sizes, [out], 2), 2 * self.vector_after + 8)
        rows, row = _rows(src)
        copies = prod(out.sizes[a] for a in axes) * rows * max(1, ceil(row / self.m.ub_move_bytes.value))
        return Cost(self.head + copies, self.vector_after + 4)

    def reduce(self, src: View, axes) -> Cost:
        """Leading axis: halvings of all rows at once. Middle axis: halvings of one instruction per pair of rows, each
        over the axes outside. Last axis: folds to one repeat a row, then a row-wise reduction."""
        bytes_ = src.bits / 8
        if len(src.sizes) - 1 not in axes:
            extent = prod(src.sizes[a] for a in axes)
            inner = prod(src.sizes[a] for a in range(max(axes) + 1, len(src.sizes))) * bytes_
            outer = src.numel * bytes_ / (extent * inner)
            row = ceil(inner / self.m.vector_bytes.value)
            folds = max(1, ceil(log2(max(2, extent))))
            packed = inner % self.m.vector_bytes.value == 0 or src.strides[max(axes)] * bytes_ == inner
            if outer == 1:  # rows that lie next to each other fill repeats
                total = (extent - 1) * (inner / self.m.vector_bytes.value if packed else row)
            else:
                total = (extent - 1) * max(outer * row, self.step)
            return Cost(2 * total + folds * self.head, folds * (self.vector_after + 6))
        extent = prod(src.sizes[a] for a in axes)
        rows = src.numel // extent
        folds = max(0, ceil(log2(max(1, extent * bytes_ / self.m.vector_bytes.value))))
        total = src.numel * bytes_ / self.m.vector_bytes.value
        return Cost(2 * total + rows + (folds + 1) * self.head, (folds + 1) * (self.vector_after + 20))

    def transpose(self, src: View, out: View, order) -> Cost:
        """Last axis kept: one copy instruction per step of the shorter axis. Otherwise vnchwconv plane by plane: tiles
        of 16 pieces of 32 bytes at 128 bytes a cycle, and 32 addresses to set up per instruction."""
        if order[-1] == len(order) - 1:
            rows, row = src.numel // src.sizes[-1], src.sizes[-1] * src.bits / 8
            copies = rows * max(1, ceil(row / self.m.ub_move_bytes.value))
            return Cost(self.head + max(copies, min(src.sizes[:-1]) * self.step), self.vector_after + 4)
        per_block = max(1, 256 // src.bits)
        rows, columns = ceil(src.sizes[order[-1]] / 16), ceil(src.sizes[-1] / per_block)
        planes = src.numel // (src.sizes[order[-1]] * src.sizes[-1])
        read = src.strides[order[-1]] * src.bits // 256  # 16 rows of 32 bytes, written as 8 rows of 64 for 32 bits
        written = out.strides[order.index(len(order) - 1)] * out.bits // 256
        wide = 2 if src.bits == 32 else 1
        cycles = max(rows, columns) * 4 * max(self.spread(read), self.spread(written) / wide)
        plane = min(rows, columns) * max(cycles, self.m.transpose_setup.value) + self.vector_after
        return Cost(planes * plane + self.head, self.vector_after + 7)

    def spread(self, blocks: int) -> float:
        """How often 8 pieces of 32 bytes, `blocks` such pieces apart, have to queue for their bank groups."""
        groups = int(self.m.bank_groups.value)
        return max(1.0, 8 * gcd(blocks, groups) / groups) if blocks else 1.0

    # transfers -----------------------------------------------------------------------------------------------------
    def move(self, instr, ins, outs) -> Cost:
        """load, store, nd2nz, fixpipe between global memory and the core; vbrc into L1."""
        kind, m = instr.name, self.m
        if kind == "vbrc":
            return Cost(outs[0].numel * outs[0].bits / 8 / m.l1_write_bytes.value + 8, 16)
        gm = ins[0] if kind in ("load", "nd2nz") else outs[0]
        rows, row = _rows(gm)
        if kind == "fixpipe":  # goes row by row, also where rows touch
            rows, row = gm.numel // gm.sizes[-1] if gm.sizes[-1] else 0, gm.sizes[-1] * gm.bits / 8
        rate = m.fixpipe_bytes.value if kind == "fixpipe" else m.gm_bytes.value
        size = rows * row
        if rows == 0 or size == 0:
            return Cost(4, 0)
        if kind == "fixpipe":
            row32 = row * 32 / gm.bits  # read from L0C as fp32
            busy = rows * ceil(max(row / rate, row32 / 128))
        else:
            busy = max(size / rate, rows * m.gm_burst.value if rows > 1 else 0, m.gm_issue.value)
        if kind in ("load", "nd2nz"):
            latency = m.l2_read_latency if gm.mem.name == "workspace" else m.gm_read_latency
            return Cost(busy, latency.value, read=int(size))
        return Cost(busy, m.gm_write_latency.value, written=int(size))

    # cube ----------------------------------------------------------------------------------------------------------
    def mmad(self, instr, m_len: int, k_len: int, n_len: int) -> tuple[float, float, float]:
        """(L1->L0A+L0B cycles, mmad cycles, number of k slices) of one mmadL1."""
        m, dtype = self.m, instr.ins[0].dtype
        size = BITS[dtype] // 8
        step = m.mmad_k_16bit.value
        if dtype == "f32":
            step = m.mmad_k_hf32.value if "enable_HF32" in instr.attrs else m.mmad_k_fp32.value
        m16, n16, k_pad = ceil(m_len / 16) * 16, ceil(n_len / 16) * 16, ceil(k_len * size / 32) * 32 // size
        moved = m16 * k_pad * size / m.l0a_bytes.value + n16 * k_pad * size / m.l0b_bytes.value
        return moved, (m16 // 16) * (n16 // 16) * ceil(k_len / step), k_slices(m_len, n_len, k_len, size)


def _axes(text: str) -> tuple[int, ...]:
    return tuple(int(a) for a in text.strip("[]").split(",") if a.strip())


def _merged(sizes, tiles) -> list[tuple[int, tuple]]:
    """(extent, stride per tile) of the axes that remain when axes contiguous in every tile are joined."""
    axes: list[tuple[int, tuple]] = []
    for axis, extent in enumerate(sizes):
        if extent == 1 and len(sizes) > 1:
            continue
        strides = tuple(v.strides[axis] if len(v.sizes) == len(sizes) and v.sizes[axis] != 1 else 0 for v in tiles)
        if axes and all(before == extent * here for before, here in zip(axes[-1][1], strides, strict=True)):
            axes[-1] = (axes[-1][0] * extent, strides)
        else:
            axes.append((extent, strides))
    return axes or [(1, (1,) * len(tiles))]


def _unaligned(view: View) -> bool:
    """Whether the library has to work on a view element by element: rows that do not start on 32 bytes."""
    starts = [s * view.bits for n, s in zip(view.sizes, view.strides, strict=True) if n != 1][:-1]
    return view.addr % 256 != 0 or (view.bits >= 8 and any(s % 256 for s in starts))


def _rows(view: View) -> tuple[int, float]:
    """(number of contiguous runs, bytes of one run) of a view."""
    run, rows, expect, merging = 1, 1, 1, True
    for extent, stride in zip(reversed(view.sizes), reversed(view.strides), strict=True):
        if extent == 1:
            continue
        if merging and stride == expect:
            run *= extent
            expect *= extent
        else:
            merging = False
            rows *= extent
    return rows, run * view.bits / 8
