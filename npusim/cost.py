"""How long one instruction keeps its pipe busy and when its result is there, in cycles, from shapes alone.

The numbers are machine.py's; how many hardware instructions an op expands to follows the op library of AscendNPU-IR
(bishengir/lib/Template). Queues, waits and overlap are time.py's business.
"""
from __future__ import annotations

from math import ceil, log2, prod

from .errors import UnsupportedError
from .machine import Machine
from .parse import BITS
from .views import View, k_slices

# Own delay of an instruction after its last repeat; SLOW: cycles a repeat where not 1 (hicann/pypto VEC_VALU_TAB).
DELAY = {"vadd": 6, "vsub": 6, "vmul": 7, "vmax": 4, "vmin": 4, "vdiv": 13, "vexp": 12, "vln": 14, "vsqrt": 13,
         "vrsqrt": 5, "vrec": 5, "vabs": 4, "vrelu": 4, "vcmp": 6, "vsel": 6, "vnot": 4, "vor": 4, "vand": 4,
         "vxor": 4, "vcast": 4, "vshl": 4, "vshr": 4}
SLOW = {"vexp": 2, "vdiv": 2, "vln": 2, "vsqrt": 2}
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
        self.head = machine.vector_head.value

    # vector --------------------------------------------------------------------------------------------------------
    def vector(self, instr, ins, outs) -> Cost:
        """A HIVM vector op on UB."""
        kind = instr.name
        shaped = [(v, t) for v, t in zip((*ins, *outs), (*instr.ins, *instr.outs), strict=False) if isinstance(v, View)]
        dtypes = {t.dtype for _, t in shaped}
        out = outs[0]
        if "i64" in dtypes and kind not in ("vbrc", "copy", "vcast"):
            return Cost(SCALAR_LOOP * max(v.numel for v, _ in shaped), 0)
        if kind == "vreduce":
            return self.reduce(ins[0], _axes(instr.attrs["reduce_dims"]))
        if kind == "vtranspose":
            return self.transpose(ins[0], _axes(instr.attrs["permutation"]))
        if kind == "vbrc":
            return self.broadcast(ins[0], out, _axes(instr.attrs.get("broadcast_dims", "[]")))
        if kind == "varange":
            steps = max(1, ceil(log2(max(2, out.numel))) - 2)
            return Cost(self.repeats(out) + steps * (self.head + 2), steps * (self.vector_after + 6))
        if kind == "copy":
            rows, row = _rows(out)
            return Cost(rows * max(1, ceil(row / self.m.ub_move_bytes.value)) + self.head, 12)
        if kind in ("vcumsum", "vflip", "vgather", "vpad", "vconcat", "vinterleave", "vdeinterleave", "vmod"):
            passes = {"vcumsum": ins[0].sizes[0], "vmod": 5}.get(kind, 7)  # vreducev2 takes 7 cycles a repeat
            return Cost(passes * self.repeats(out) + self.head, self.vector_after + 7)
        if kind not in DELAY:
            raise UnsupportedError(f"line {instr.line}: vector op {kind!r} has no cost in npusim")
        extra = self.inline_broadcast(instr, ins, out)
        repeats = max(self.repeats(v) for v, _ in shaped) * self.conflict(ins)
        if kind == "vcast" and "i1" in dtypes:
            repeats = 2 * repeats + 2 * self.head  # duplicate the constants, then select
        busy = self.head + repeats * SLOW.get(kind, 1) + extra.busy
        return Cost(busy, self.vector_after + DELAY[kind] + extra.after)

    def repeats(self, view: View) -> float:
        """Repeats of 256 bytes of one instruction over a view; rows that are not contiguous start a new one."""
        rows, row = _rows(view)
        return rows * ceil(row / self.m.vector_bytes.value)

    def conflict(self, ins) -> int:
        """2 where two operands of a repeat lie in the same bank groups of UB, so that their reads queue; else 1."""
        tiles = [v for v in ins if isinstance(v, View) and v.bits >= 8]
        if len(tiles) < 2:
            return 1
        groups = int(self.m.bank_groups.value)
        apart = (tiles[0].addr // 256 - tiles[1].addr // 256) % groups
        blocks = min(8, *(max(1, ceil(_rows(v)[1] / 32)) for v in tiles))
        return 2 if min(apart, groups - apart) < blocks else 1

    def inline_broadcast(self, instr, ins, out: View) -> Cost:
        """A last-axis broadcast inside an elementwise op: brcb of the narrow operand, then one dependent pass."""
        axes = _axes(instr.attrs.get("broadcast", "[]"))
        if not axes or len(out.sizes) - 1 not in axes:
            return Cost(0, 0)
        narrow = [v for v in ins if isinstance(v, View) and v.sizes[-1] == 1]
        blocks = sum(v.numel for v in narrow)
        return Cost(self.head + blocks * 32 / 128, self.vector_after + 4)

    def broadcast(self, src, out: View, axes) -> Cost:
        if not isinstance(src, View) or not axes:
            return Cost(self.head + self.repeats(out), self.vector_after + 4)
        if len(out.sizes) - 1 in axes:
            blocks = src.numel * 32 / 128
            return Cost(2 * self.head + blocks + self.repeats(out), 2 * self.vector_after + 8)
        rows, row = _rows(src)
        times = prod(out.sizes[a] for a in axes)
        return Cost(self.head + max(times * rows * max(1, ceil(row / 256)), self.repeats(out)), self.vector_after + 4)

    def reduce(self, src: View, axes) -> Cost:
        """Leading or middle axes: halving adds, each waiting for the one before. Last axis: fold to one repeat a row,
        then a row-wise reduction."""
        total = src.numel * src.bits / 8 / self.m.vector_bytes.value
        if len(src.sizes) - 1 not in axes:
            steps = max(1, ceil(log2(max(2, prod(src.sizes[a] for a in axes)))))
            return Cost(total + steps * self.head, steps * (self.vector_after + 6))
        extent = prod(src.sizes[a] for a in axes)
        rows = src.numel // extent
        per_repeat = int(self.m.vector_bytes.value * 8 // src.bits)
        steps = max(0, ceil(log2(max(1, extent / per_repeat))))
        return Cost(total + rows + (steps + 1) * self.head, (steps + 1) * (self.vector_after + 20))

    def transpose(self, src: View, order) -> Cost:
        """Last axis kept: strided row copies. Otherwise vnchwconv, 128 bytes a cycle, twice for 32-bit types."""
        if order[-1] == len(order) - 1:
            rows, row = src.numel // src.sizes[-1], src.sizes[-1] * src.bits / 8
            return Cost(self.head + rows * max(1, ceil(row / self.m.ub_move_bytes.value)), self.vector_after + 4)
        passes = 2 if src.bits == 32 else 1
        return Cost(passes * (self.head + src.numel * src.bits / 8 / 128), passes * (self.vector_after + 7))

    # transfers -----------------------------------------------------------------------------------------------------
    def move(self, instr, ins, outs) -> Cost:
        """load, store, nd2nz, fixpipe between global memory and the core; vbrc into L1."""
        kind, m = instr.name, self.m
        if kind == "vbrc":
            return Cost(outs[0].numel * outs[0].bits / 8 / m.l1_write_bytes.value + 8, 16)
        gm = ins[0] if kind in ("load", "nd2nz") else outs[0]
        rows, row = _rows(gm)
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
