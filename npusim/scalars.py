"""Scalar arithmetic of the IR as Python expressions, with the widths and roundings of its types.

Used by the code that lower.py writes (there under the name R); nothing here knows about memory or time.
"""
from __future__ import annotations

import ast

import numpy as np

COMPARE = {"eq": "==", "ne": "!=", "slt": "<", "sle": "<=", "sgt": ">", "sge": ">=", "ult": "<", "ule": "<=",
           "ugt": ">", "uge": ">=", "oeq": "==", "one": "!=", "olt": "<", "ole": "<=", "ogt": ">", "oge": ">=",
           "ueq": "==", "une": "!="}
BINARY = {"andi": "&", "ori": "|", "xori": "^"}
WRAPPED = {"addi": "+", "subi": "-", "muli": "*"}
FLOAT = {"addf": "+", "subf": "-", "mulf": "*", "divf": "/"}
CALLS = {"divsi": "divsi", "remsi": "remsi", "divui": "divsi", "remui": "remsi", "floordivsi": "floordiv",
         "ceildivsi": "ceildiv", "ceildivui": "ceildiv", "shli": "shli", "shrsi": "shr", "shrui": "shr"}
PICK = {"minsi": "min", "maxsi": "max", "minui": "min", "maxui": "max", "minimumf": "min", "maximumf": "max",
        "minnumf": "min", "maxnumf": "max"}


def expression(kind: str, first: str, v: list[str], type_name: str) -> str | None:
    """Python text for `arith.<kind>` on operands `v`; None when it is not known. `first` holds a predicate."""
    if kind in WRAPPED:
        inner = f"{v[0]} {WRAPPED[kind]} {v[1]}"
        return f"R.wrap32({inner})" if type_name == "i32" else f"({inner})"
    if kind in BINARY:
        return f"({v[0]} {BINARY[kind]} {v[1]})"
    if kind in CALLS:
        return f"R.{CALLS[kind]}({v[0]}, {v[1]})"
    if kind in PICK:
        return f"{PICK[kind]}({v[0]}, {v[1]})"
    if kind in FLOAT:
        return f"R.rounded({v[0]} {FLOAT[kind]} {v[1]}, {type_name!r})"
    if kind in ("cmpi", "cmpf"):
        return f"({v[0]} {COMPARE[first]} {v[1]})" if first in COMPARE else None
    if kind == "select":
        return f"({v[1]} if {v[0]} else {v[2]})"
    if kind in ("index_cast", "index_castui", "trunci"):
        to = type_name.split(" to ")[-1]
        return f"({v[0]} & 1)" if to == "i1" else f"R.wrap32({v[0]})" if to == "i32" else v[0]
    if kind in ("extsi", "extui"):
        return f"int({v[0]})" if type_name.startswith("i1 ") else v[0]
    if kind in ("sitofp", "uitofp", "extf", "truncf"):
        return f"R.rounded({v[0]}, {type_name.split(' to ')[-1]!r})"
    if kind in ("fptosi", "fptoui"):
        return f"int({v[0]})"
    if kind == "negf":
        return f"(-{v[0]})"
    return None


def affine(text: str, names: dict[str, str]) -> str:
    """An affine expression as Python, with its dimensions and symbols replaced."""
    tree = ast.parse(text.replace("floordiv", "//").replace("ceildiv", "@").replace(" mod ", " % "), mode="eval")

    class Rewrite(ast.NodeTransformer):
        def visit_Name(self, node):
            return ast.parse(names[node.id], mode="eval").body

        def visit_BinOp(self, node):
            node = self.generic_visit(node)
            if isinstance(node.op, ast.MatMult):
                return ast.parse(f"-((-({ast.unparse(node.left)})) // ({ast.unparse(node.right)}))", mode="eval").body
            return node

    return f"({ast.unparse(Rewrite().visit(tree))})"


def wrap32(x):
    """Two's complement in 32 bits; an unknown stays unknown."""
    if type(x) is not int:
        return x
    return x if -0x80000000 <= x <= 0x7FFFFFFF else (x + 0x80000000) % 0x100000000 - 0x80000000


def divsi(a, b):
    """Division that truncates toward zero."""
    if type(a) is int and type(b) is int and (a < 0) != (b < 0):
        return -(-a // b) if a < 0 else -(a // -b)
    return a // b


def remsi(a, b):
    """The remainder that goes with divsi: it has the sign of a."""
    if type(a) is int and type(b) is int and (a < 0 or b < 0):
        return a - divsi(a, b) * b
    return a % b


def floordiv(a, b):
    return a // b


def ceildiv(a, b):
    return -(-a // b)


def shli(a, b):
    return a << b


def shr(a, b):
    return a >> b


def special(x) -> float:
    """inf, -inf and nan, which have no literal in Python."""
    return float(x)


def rounded(x, dtype: str):
    """x as the nearest value of dtype."""
    if not isinstance(x, (int, float)):
        return x
    if dtype == "f16":
        return float(np.float16(x))
    single = np.float32(x)
    if dtype == "bf16":
        raw = int(single.view(np.uint32))
        raw = (raw + 0x7FFF + ((raw >> 16) & 1)) & 0xFFFF0000
        return float(np.uint32(raw).view(np.float32))
    return float(single) if dtype == "f32" else float(x)


def dense(sizes) -> tuple[int, ...]:
    """Row-major strides of a contiguous array."""
    strides, running = [], 1
    for extent in reversed(sizes):
        strides.append(running)
        running *= extent
    return tuple(reversed(strides))
