"""How far a result is from the exact one, chunk by chunk, and the bounds that the project promises.

Errors are relative Frobenius norms per (chunk, head): a whole-tensor norm would let one broken chunk drown.
"""
from __future__ import annotations

import torch

from mindspeed_kkt_plugin import reference
from mindspeed_kkt_plugin.varlen import chunk_rows
from ut.inputs import BETA_TO_2, Inputs

FP32_BOUND = 1e-5
FP32_BOUND_BETA_2 = 5e-5
ROUNDING_FACTOR = 1.1  # a 16-bit result may be this much worse than rounding the exact one once
MEAN_BOUND = 1e-3


def exact(inputs: Inputs, **layout) -> torch.Tensor:
    """Float64 forward substitution on the values as given (after their own rounding), on the CPU."""
    return reference.kkt_solve(*(x.cpu() if isinstance(x, torch.Tensor) else x for x in inputs.args), **layout)


def chunk_errors(
    out: torch.Tensor, truth: torch.Tensor, chunk_size: int, cu_seqlens: torch.Tensor | None = None
) -> torch.Tensor:
    """Relative Frobenius error of `[B, T, HV, BT]` tensors per chunk and head: `[B, NT, HV]`, float64."""
    rows, valid = chunk_rows(truth.shape[1], chunk_size, cu_seqlens)
    keep = valid[:, :, None, None]
    truth = truth.double().cpu()
    gap = torch.where(keep, (out.double().cpu() - truth)[:, rows], 0).square().sum((2, 4))
    return (gap / torch.where(keep, truth[:, rows], 0).square().sum((2, 4))).sqrt()


def worst_chunk(out: torch.Tensor, truth: torch.Tensor, inputs: Inputs) -> float:
    errors = chunk_errors(out, truth, inputs.chunk_size, inputs.cu_seqlens)
    return errors.max().item() if errors.numel() else 0.0


def mean_relative(out: torch.Tensor, truth: torch.Tensor) -> float:
    """Sum of absolute errors over sum of absolute exact values."""
    truth = truth.double().cpu()
    return ((out.double().cpu() - truth).abs().sum() / truth.abs().sum().clamp_min(1e-300)).item()


def bound(truth: torch.Tensor, dtype: torch.dtype, inputs: Inputs, regime: str = "random") -> float:
    """The promised worst-chunk error of a result in `dtype`."""
    computing = FP32_BOUND_BETA_2 if regime in BETA_TO_2 else FP32_BOUND
    if dtype == torch.float32:
        return computing
    # A result of whole numbers rounds to 16 bits without error; then computing it in fp32 is the floor.
    return max(computing, ROUNDING_FACTOR * worst_chunk(truth.to(dtype), truth, inputs))


def assert_accurate(out: torch.Tensor, truth: torch.Tensor, inputs: Inputs, regime: str = "random") -> float:
    """Everything promised about a token-first result; returns the worst chunk's error."""
    assert out.shape == truth.shape
    host = out.detach().cpu()
    assert torch.isfinite(host).all(), "NaN or Inf in the result"
    error = worst_chunk(host, truth, inputs)
    limit = bound(truth, out.dtype, inputs, regime)
    assert error <= limit, f"worst chunk's relative Frobenius error {error:.3g} exceeds {limit:.3g} ({regime})"
    # A 16-bit format may round by more than the promised mean on its own; then that is the floor.
    mean_limit = max(MEAN_BOUND, ROUNDING_FACTOR * mean_relative(truth.to(out.dtype), truth))
    assert mean_relative(host, truth) < mean_limit
    assert_structure(host, inputs)
    return error


def assert_structure(out: torch.Tensor, inputs: Inputs) -> None:
    """Ones on the diagonal, zeros above it and outside every sequence: exactly."""
    rows, valid = chunk_rows(out.shape[1], inputs.chunk_size, inputs.cu_seqlens)
    out = out.cpu()
    live = out[:, rows[valid]]  # [B, rows inside a sequence, HV, BT]
    place = torch.arange(inputs.chunk_size).expand(valid.shape)[valid][None, :, None, None]
    column = torch.arange(inputs.chunk_size)
    assert (torch.where(column > place, live, 0) == 0).all(), "non-zero above the diagonal"
    assert (torch.where(column == place, live, 1) == 1).all(), "diagonal is not one"
    outside = torch.ones(out.shape[1], dtype=torch.bool)
    outside[rows[valid]] = False
    assert (out[:, outside] == 0).all(), "rows outside every sequence are not zero"
