"""What each tensor op computes, on numpy arrays. Order, memory and cost are elsewhere.

`compute(instr, inputs, poisons, outs)` returns (values, poison) per output; poison marks elements that came from
memory nothing wrote, and follows the data: an element of a select only follows the branch it took.
"""
from __future__ import annotations

import numpy as np

from .errors import UnsupportedError
from .floats import cast, hf32
from .views import View

COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "gt": np.greater, "ge": np.greater_equal,
           "le": np.less_equal}
UNARY = {"vexp": np.exp, "vln": np.log, "vabs": np.abs, "vsqrt": np.sqrt, "vnot": np.invert,
         "vrelu": lambda x: np.maximum(x, 0), "vrec": lambda x: 1 / x, "vrsqrt": lambda x: 1 / np.sqrt(x)}
BINARY = {"vadd": np.add, "vsub": np.subtract, "vmul": np.multiply, "vmax": np.fmax, "vmin": np.fmin,
          "vand": np.bitwise_and, "vor": np.bitwise_or, "vxor": np.bitwise_xor, "vshl": np.left_shift,
          "vshr": np.right_shift}
REDUCE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
          "all": np.logical_and, "ori": np.bitwise_or, "andi": np.bitwise_and, "xori": np.bitwise_xor}


def axes(text: str) -> tuple[int, ...]:
    """`[0, 2]` as a tuple."""
    return tuple(int(a) for a in text.strip("[]").split(",") if a.strip())


def compute(instr, inputs: list, poisons: list, out: View):
    """(values, poison or None) of a vector op or transfer with one output."""
    kind, attrs = instr.name, instr.attrs
    with np.errstate(all="ignore"):
        if kind == "vsel":
            return _select(inputs, poisons)
        if kind in ("vreduce",):
            return _reduce(instr, inputs[0], poisons[0], out)
        if kind == "vtranspose":
            order = axes(attrs["permutation"])
            return inputs[0].transpose(order), None if poisons[0] is None else poisons[0].transpose(order)
        if kind == "varange":
            offset, *strides = inputs
            grid = np.indices(out.sizes, np.int64)
            return offset + sum(grid[i] * s for i, s in enumerate(strides)), None
        if kind == "vflip":
            axis = int(attrs["flip_axis"])
            return np.flip(inputs[0], axis), None if poisons[0] is None else np.flip(poisons[0], axis)
        if kind == "vinterleave":
            return np.stack(inputs, -1).reshape(out.sizes), _interleaved(poisons, inputs[0].shape, out.sizes)
        if kind == "vdeinterleave":
            pick = slice(_channel(instr), None, int(attrs.get("channel_num", "2")))
            return inputs[0][..., pick], None if poisons[0] is None else poisons[0][..., pick]
        if kind in ("vbrc", "copy", "load", "store"):
            if attrs.get("atomic", "none") not in ("none", "NONE"):
                raise UnsupportedError(f"line {instr.line}: atomic {kind} is not modelled by npusim.execute")
            if kind != "vbrc" and inputs[0].shape != out.sizes:
                raise ValueError("a transfer keeps the shape")
            return _like(inputs[0], instr), poisons[0]
        if kind == "vcast":
            values = cast(inputs[0], instr.ins[0].dtype, instr.outs[0].dtype, attrs.get("round_mode", "rint"),
                          attrs.get("cast") == "cast_unsigned")
            return values, poisons[0]
        return _elementwise(instr, kind, [_like(x, instr) for x in inputs]), _union(poisons)


def _like(value, instr):
    """A scalar operand in the dtype of the op's tensors, so that numpy does not widen the arithmetic."""
    if isinstance(value, np.ndarray):
        return value
    dtype = next((t.dtype for t in (*instr.ins, *instr.outs) if not isinstance(t, str)), "f32")
    kind = {"f32": np.float32, "bf16": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64,
            "i16": np.int16, "i8": np.int8, "i1": bool}.get(dtype, np.float32)
    return np.asarray(value).astype(kind)


def _elementwise(instr, kind: str, inputs: list):
    if kind == "vcmp":
        return COMPARE[instr.attrs.get("compare_mode", "eq")](inputs[0], inputs[1])
    if kind == "vdiv":
        if np.issubdtype(np.asarray(inputs[0]).dtype, np.integer):
            return np.trunc(np.asarray(inputs[0], np.float64) / inputs[1]).astype(np.asarray(inputs[0]).dtype)
        return np.divide(inputs[0], inputs[1])
    if kind in UNARY:
        return UNARY[kind](inputs[0])
    if kind in BINARY:
        return BINARY[kind](inputs[0], inputs[1])
    raise UnsupportedError(f"line {instr.line}: {kind} has no meaning in npusim.execute")


def _interleaved(poisons, shape, sizes):
    if all(p is None for p in poisons):
        return None
    return np.stack([np.zeros(shape, bool) if p is None else p for p in poisons], -1).reshape(sizes)


def _channel(instr) -> int:
    found = instr.attrs.get("index_mode", "ALL_CHANNELS").removeprefix("CHANNEL_")
    if not found.isdigit():
        raise UnsupportedError(f"line {instr.line}: vdeinterleave of {found} is not modelled by npusim")
    return int(found)


def _union(poisons: list):
    known = [p for p in poisons if p is not None]
    if not known:
        return None
    joined = known[0]
    for p in known[1:]:
        joined = np.logical_or(joined, p)
    return joined


def _select(inputs, poisons):
    condition, yes, no = (np.asarray(x) for x in inputs)
    values = np.where(condition, yes, no)
    if all(p is None for p in poisons):
        return values, None
    none = np.zeros((), bool)
    p_cond, p_yes, p_no = (none if p is None else p for p in poisons)
    return values, np.logical_or(p_cond, np.where(condition, p_yes, p_no))


def _reduce(instr, values, poison, out: View):
    how, over = instr.attrs["arith"], axes(instr.attrs["reduce_dims"])
    if how not in REDUCE:
        raise UnsupportedError(f"line {instr.line}: vreduce <{how}> has no meaning in npusim.execute")
    dtype = None if how in ("any", "all") else values.dtype
    result = REDUCE[how].reduce(values, axis=over, dtype=dtype).reshape(out.sizes)
    return result, None if poison is None else poison.any(axis=over).reshape(out.sizes)


# matrices in fractals ----------------------------------------------------------------------------------------------
def to_fractal(matrix: np.ndarray, sizes) -> np.ndarray:
    """nd2nz: [rows, columns] to [columns/c0, rows/16, 16, c0], padded with zeros."""
    outer, blocks, rows, c0 = sizes
    padded = np.zeros((blocks * rows, outer * c0), matrix.dtype)
    padded[:matrix.shape[0], :matrix.shape[1]] = matrix
    return padded.reshape(blocks, rows, outer, c0).transpose(2, 0, 1, 3)


def from_fractal(fractal: np.ndarray) -> np.ndarray:
    """[columns/c0, rows/16, 16, c0] back to [rows, columns]."""
    outer, blocks, rows, c0 = fractal.shape
    return fractal.transpose(1, 2, 0, 3).reshape(blocks * rows, outer * c0)


def product(a, b, m: int, k: int, n: int, instr) -> np.ndarray:
    """A[m,k] B[k,n] accumulated in fp32; a and b are the fractals' matrices as they lie in L1."""
    a = a.T if "a_transpose" in instr.attrs else a
    b = b.T if "b_transpose" in instr.attrs else b
    a, b = a[:m, :k].astype(np.float32), b[:k, :n].astype(np.float32)
    if "enable_HF32" in instr.attrs:
        a, b = hf32(a), hf32(b)
    with np.errstate(all="ignore"):
        return np.matmul(a, b)
