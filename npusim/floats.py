"""Number formats of the NPU on numpy arrays: bf16 as the upper half of fp32, fp16, hf32 operand rounding.

Values are computed as fp32 where numpy has no type; rounding is to nearest even.
"""
from __future__ import annotations

import numpy as np

from .errors import UnsupportedError

STORAGE = {"i1": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
           "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}
FLOATS = ("f16", "bf16", "f32", "f64")


def from_storage(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Stored elements as values to compute with: bf16 becomes fp32, the rest stays."""
    return (raw.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else raw


def to_storage(values, dtype: str) -> np.ndarray:
    """Values as stored elements of dtype."""
    if dtype == "bf16":
        return bf16_bits(np.asarray(values, np.float32))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(STORAGE[dtype], copy=False)


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """fp32 to bf16 bits, to nearest even; NaN stays NaN."""
    raw = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (raw + 0x7FFF + ((raw >> 16) & 1)) >> 16
    nan = (raw & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, (raw >> 16) | 0x40, rounded).astype(np.uint16)


def hf32(values: np.ndarray) -> np.ndarray:
    """fp32 rounded to 11 mantissa bits, as the cube does in hf32 mode before it multiplies."""
    raw = np.ascontiguousarray(values, np.float32).view(np.uint32)
    finite = (raw & 0x7F800000) != 0x7F800000
    rounded = (raw + 0x7FF + ((raw >> 12) & 1)) & np.uint32(0xFFFFF000)
    return np.where(finite, rounded, raw).astype(np.uint32).view(np.float32)


def cast(values: np.ndarray, source: str, target: str, mode: str, unsigned: bool) -> np.ndarray:
    """`vcast`: to another float type rounds to nearest even in storing; to integers, and to whole numbers of the same
    float type, rounds as `mode` says."""
    if source == "i1":
        return values.astype(np.float32) if target in FLOATS else values.astype(STORAGE[target])
    if target == "i1":
        return values != 0
    if source in FLOATS and (target not in FLOATS or target == source):
        how = {"rint": np.rint, "round": lambda x: np.trunc(x + np.copysign(0.5, x)), "floor": np.floor,
               "ceil": np.ceil, "trunc": np.trunc, "truncwithoverflow": np.trunc}[mode]
        if target == source:  # to whole numbers of the same type
            return how(values)
        info = np.iinfo(STORAGE[target])
        exact = how(values.astype(np.float64))
        return np.nan_to_num(np.clip(exact, info.min, info.max)).astype(STORAGE[target])
    if source in FLOATS and mode != "rint" and not (source in ("f16", "bf16") and target == "f32"):
        raise UnsupportedError(f"vcast from {source} to {target} with round_mode = <{mode}> is not modelled by npusim")
    if source not in FLOATS and unsigned:
        width = values.dtype.itemsize
        values = values.view(f"u{width}")
    return values.astype(np.float64 if source == "i64" else np.float32) if target in FLOATS else values
