"""The project's own, tighter bounds on top of ATK's standards: worst chunk, mean error, exact structure.

Uses the suite's `ut/accuracy.py`, so that ATK cases and unit tests cannot drift apart.
"""
from __future__ import annotations

from typing import Any

import torch

from ut.accuracy import (
    FP32_BOUND,
    FP32_BOUND_BETA_2,
    MEAN_BOUND,
    ROUNDING_FACTOR,
    assert_structure,
    mean_relative,
    worst_chunk,
)
from ut.inputs import Inputs


def check(out: torch.Tensor, operands: Any, exact: torch.Tensor) -> tuple[bool, dict]:
    """out: the result as the operator gave it; exact: float64, same layout. Returns (passed, figures)."""
    if operands.output_head_first:
        out, exact = out.transpose(1, 2), exact.transpose(1, 2)
    inputs = Inputs(operands.k, operands.g, operands.beta, operands.cu_seqlens, operands.chunk_size)
    error, mean = worst_chunk(out, exact, inputs), mean_relative(out, exact)
    rounded = exact.to(out.dtype)
    if out.dtype == torch.float32:
        beta_to_2 = operands.beta is not None and operands.beta.max() > 1
        limit = FP32_BOUND_BETA_2 if beta_to_2 else FP32_BOUND
    else:
        limit = ROUNDING_FACTOR * worst_chunk(rounded, exact, inputs)
    mean_limit = max(MEAN_BOUND, ROUNDING_FACTOR * mean_relative(rounded, exact))
    try:
        assert_structure(out, inputs)
        structure = "ok"
    except AssertionError as problem:
        structure = str(problem)
    figures = {"worst_chunk": error, "worst_chunk_limit": limit, "mean_relative": mean, "structure": structure}
    return error <= limit and mean <= mean_limit and structure == "ok", figures
