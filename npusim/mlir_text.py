"""Brackets, lists and types of MLIR text. Ops and modules are parse.py's."""
from __future__ import annotations

from dataclasses import dataclass

from .errors import NpusimError, UnsupportedError

BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}


@dataclass(frozen=True)
class MemRef:
    """`memref<…>`: shape and strides in elements (None where dynamic), dtype, memory space (gm, ub, cbuf, cc, …)."""

    shape: tuple[int | None, ...]
    dtype: str
    strides: tuple[int | None, ...]
    space: str


def split_top(text: str, separator: str) -> list[str]:
    """Split at `separator` outside any bracket; `->` does not close one."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        c = text[i]
        if c == '"':
            i = text.index('"', i + 1)
        elif c in "([{<":
            depth += 1
        elif c in ")]}" or (c == ">" and text[i - 1] != "-"):
            depth -= 1
        elif depth == 0 and text.startswith(separator, i):
            parts.append(text[start:i].strip())
            i += len(separator)
            start = i
            continue
        i += 1
    tail = text[start:].strip()
    return [*parts, tail] if tail or parts else []


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        c = text[i]
        if c in "([{<":
            depth += 1
        elif c in ")]}" or (c == ">" and text[i - 1] != "-"):
            depth -= 1
            if depth == 0:
                return i
    raise NpusimError(f"unbalanced bracket in IR: {text[start:start + 60]!r}")


_TYPES: dict[str, object] = {}


def parse_type(text: str):
    """A MemRef for `memref<…>`, else the type's name (`i32`, `bf16`, `index`, …)."""
    text = text.strip()
    if text not in _TYPES:
        _TYPES[text] = _memref(text) if text.startswith("memref<") else text
    return _TYPES[text]


def _memref(text: str) -> MemRef:
    parts = split_top(text[len("memref<"):-1], ",")
    *dims, dtype = parts[0].split("x") if "x" in parts[0] else [parts[0]]
    if dtype not in BITS:
        raise UnsupportedError(f"element type {dtype!r} in {text} is not known; known: {', '.join(BITS)}")
    shape = tuple(None if d == "?" else int(d) for d in dims)
    strides, space = None, "gm"
    for part in parts[1:]:
        if part.startswith("strided<"):
            inner = part[part.index("[") + 1:part.index("]")]
            strides = tuple(None if s.strip() == "?" else int(s) for s in inner.split(",") if s.strip())
        elif "address_space<" in part:
            space = part[part.index("address_space<") + 14:].rstrip("> ")
    if strides is None:
        running, out = 1, []
        for extent in reversed(shape):
            out.append(running)
            running = None if running is None or extent is None else running * extent
        strides = tuple(reversed(out))
    return MemRef(shape, dtype, strides, space)
