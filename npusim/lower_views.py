"""How memref ops become Python: views of memory, their shapes and strides, and scalar loads and stores.

The rest of a function, and the names and lines used here (`self[…]`, assign, emit, instr), are lower.py's.
"""
from __future__ import annotations

import re
from itertools import combinations, count
from math import prod

from .mlir_text import BITS, MemRef, closing, parse_type, split_top
from .parse import Op
from .views import S

SSA = re.compile(r"%[\w.$-]+(?:#\d+)?")


class ViewWriter:
    """The part of lower.py's writer that deals with memrefs."""

    def list_of(self, text: str) -> str:
        values = [self[v] for v in split_top(text.strip()[1:-1], ",")]
        return f"({', '.join(values)}{',' if values else ''})"

    def memref(self, op: Op) -> None:
        kind = op.name[len("memref."):]
        source = SSA.match(op.text)
        if kind in ("load", "store"):
            return self.scalar_access(op, kind)
        if not source:
            raise self.unknown(op)
        self.scalar_ops += 1
        src, rest = self[source.group(0)], op.text[source.end():]
        if kind in ("cast", "memory_space_cast"):
            self.env[op.results[0]] = src
            return None
        if kind == "extract_strided_metadata":
            return self.metadata(op, src)
        target = parse_type(re.split(r" to | into ", op.text)[-1])
        method = getattr(self, f"view_{kind}", None)
        if method is None:
            raise self.unknown(op)
        return method(op, src, rest, target)

    def metadata(self, op: Op, src: str) -> None:
        base, offset, *rest = op.results
        self.emit(f"{self.bind(base)} = View({src}.mem, {src}.base, {src}.limit, {src}.base, (), (), {src}.bits)")
        self.emit(f"{self.bind(offset)} = ({src}.addr - {src}.base) // {src}.bits")
        for place, ssa in enumerate(rest):
            half = len(rest) // 2
            self.bind(ssa, f"{src}.{'sizes' if place < half else 'strides'}[{place % half}]")

    def view_subview(self, op: Op, src: str, rest: str, target: MemRef) -> None:
        parts, i = [], 0
        for _ in range(3):
            i = rest.index("[", i)
            end = closing(rest, i)
            parts.append([self[v] for v in split_top(rest[i + 1:end], ",")])
            i = end + 1
        offsets, sizes, steps = parts
        moved = [f"{o}*{src}.strides[{axis}]" for axis, o in enumerate(offsets) if o != "0"]
        addr = f"{src}.addr" + (f" + {src}.bits*({' + '.join(moved)})" if moved else "")
        kept = range(len(sizes))
        if len(target.shape) != len(sizes):
            kept = _kept_axes(parse_type(rest[rest.rindex(" : ") + 3:rest.rindex(" to ")]), sizes, steps, target)
            if kept is None:
                raise self.unknown(op, "drops axes in a way npusim cannot tell")
            sizes = [sizes[axis] for axis in kept]
        if None not in target.strides:
            strides = repr(target.strides)
        else:
            strides = "(" + "".join(f"{steps[axis]}*{src}.strides[{axis}]," for axis in kept) + ")"
        self.assign(op, f"View({src}.mem, {src}.base, {src}.limit, {addr}, ({', '.join(sizes)},), {strides}, "
                        f"{src}.bits)")

    def view_reinterpret_cast(self, op: Op, src: str, rest: str, target: MemRef) -> None:
        offset, sizes, strides = re.match(
            r" to offset: (\[.*?\]), sizes: (\[.*?\]), strides: (\[.*?\])", rest).groups()
        offset = self[offset.strip("[]")]
        self.assign(op, f"View({src}.mem, {src}.base, {src}.limit, {src}.base + {offset}*{src}.bits, "
                        f"{self.list_of(sizes)}, {self.list_of(strides)}, {src}.bits)")

    def view_view(self, op: Op, src: str, rest: str, target: MemRef) -> None:
        shift, sizes = re.match(r"\[(.*?)\]\[(.*?)\]", rest).groups()
        dynamic = iter(split_top(sizes, ","))
        extents = [str(e) if e is not None else self[next(dynamic)] for e in target.shape]
        base = self.fresh()
        self.emit(f"{base} = {src}.base + 8*({self[shift]})")
        strides = repr(target.strides) if None not in target.strides else f"R.dense(({', '.join(extents)},))"
        limit = f"{base} + {'*'.join([str(BITS[target.dtype]), *extents])}"
        self.assign(op, f"View({src}.mem, {base}, {limit}, {base}, ({', '.join(extents)},), {strides}, "
                        f"{BITS[target.dtype]})")

    def view_collapse_shape(self, op: Op, src: str, rest: str, target: MemRef) -> None:
        groups = _groups(rest)
        if None in target.shape or None in target.strides:
            self.assign(op, f"collapse({src}, {groups})")
        else:
            self.reshaped(op, src, target)

    def view_expand_shape(self, op: Op, src: str, rest: str, target: MemRef) -> None:
        if None in target.shape or None in target.strides:
            sizes = rest[rest.index("output_shape") + 13:]
            self.assign(op, f"expand({src}, {_groups(rest)}, {self.list_of(sizes[:closing(sizes, 0) + 1])})")
        else:
            self.reshaped(op, src, target)

    def reshaped(self, op: Op, src: str, target: MemRef) -> None:
        self.assign(op, f"View({src}.mem, {src}.base, {src}.limit, {src}.addr, {target.shape}, {target.strides}, "
                        f"{src}.bits)", fixed=src in self.fixed)

    def pointer_cast(self, op: Op) -> None:
        operands, _, result = op.text[1:].partition(") : ")
        if "," in operands or "[" in operands:
            raise self.unknown(op, "with several addresses or dynamic sizes is not modelled by npusim")
        target, address = parse_type(result), self[operands]
        fixed = re.fullmatch(r"\d+", address) is not None
        addr = str(int(address) * 8) if fixed else f"8*{address}"
        extent = BITS[target.dtype] * prod(target.shape)
        limit = str(int(addr) + extent) if fixed else f"{addr} + {extent}"
        self.assign(op, f"View(mem_{target.space}, {addr}, {limit}, {addr}, {target.shape}, {target.strides}, "
                        f"{BITS[target.dtype]})", fixed=fixed)

    def scalar_access(self, op: Op, kind: str) -> None:
        memref = parse_type(op.text.rsplit(" : ", 1)[1])
        operands, i = op.text.split("[", 1)
        names = [self[v] for v in SSA.findall(operands)]
        where = self.list_of("[" + i[:i.index("]") + 1])
        if kind == "load":
            self.assign(op, f"X.scalar_load({self.instr(op, 'scalar_load', S, (memref,))}, {names[0]}, {where})")
        else:
            key = self.instr(op, "scalar_store", S, (), (memref,))
            self.emit(f"X.scalar_store({key}, {names[0]}, {names[1]}, {where})")


def _kept_axes(source: MemRef, sizes: list[str], steps: list[str], target: MemRef):
    """Axes that a rank-reducing subview keeps: those dropped have size 1 and leave the target's shape and strides."""
    def fits(axis: int, place: int) -> bool:
        extent, stride = target.shape[place], target.strides[place]
        known = source.strides[axis] if steps[axis] == "1" else None
        return (extent is None or sizes[axis] == str(extent)) and (None in (stride, known) or stride == known)

    for kept in combinations(range(len(sizes)), len(target.shape)):
        if all(sizes[a] == "1" for a in range(len(sizes)) if a not in kept) and all(map(fits, kept, count())):
            return kept
    return None


def _groups(text: str) -> str:
    start = text.index("[[")
    return text[start:closing(text, start) + 1].replace("[[", "((").replace("]]", ",),)").replace("[", "(").replace(
        "]", ",)")
