"""The one public operator: check the arguments, choose a path, run it. Kernels and choice live elsewhere."""
from __future__ import annotations

import torch

from . import paths
from .checks import as_memory, check_arguments, check_values, values_are_checked


def chunk_gated_delta_rule_fwd_kkt_solve(
    k: torch.Tensor,
    g: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    chunk_size: int = 64,
    output_dtype: torch.dtype | None = None,
    chunk_indices: torch.Tensor | None = None,
    *,
    head_first: bool = False,
    output_head_first: bool = False,
) -> torch.Tensor:
    """Gated K K^T of every chunk and the inverse of its unit lower triangular matrix, in one call.

    Per chunk of `chunk_size` tokens of one sequence and per value head h, which reads key head h // (HV // H):

        L[i, j] = beta[i] * exp(clamp(g[i] - g[j], -50, 50)) * <k_i, k_j>   for j < i, else 0
        A       = (I + L)^-1

    It equals `solve_tril(chunk_scaled_dot_kkt_fwd(...))` of MindSpeed and of flash-linear-attention, where the
    method (chunked delta rule in WY form) comes from; g is in natural log here.

    Args:
        k: keys `[B, T, H, K]`, or `[B, H, T, K]` with `head_first`; bf16, fp16 or fp32; 1 <= K <= 256. Products are
            accumulated in fp32 and, for fp32 keys, exact fp32 products (no tf32).
        g: log decay `[B, T, HV]` (`[B, HV, T]` with `head_first`), cumulative inside the chunk; fp32, bf16 or fp16,
            used in fp32. None: no decay.
        beta: `[B, T, HV]` like g, applied in fp32 after the product. None: ones.
        cu_seqlens: int32 or int64 `[N + 1]`, offsets of N packed sequences, first 0, not decreasing, last <= T; needs
            B = 1. Zero-length sequences are allowed. On CUDA these values are trusted unless `MINDSPEED_KKT_CHECK=1`
            is set, because reading them stalls the device; the Ascend kernel's plan reads and checks them.
        chunk_size: 16, 32 or 64. A last chunk may be shorter.
        output_dtype: bf16, fp16 or fp32; None means k's.
        chunk_indices: `[NT, 2]` as `varlen.prepare_chunk_indices` makes it. None: made here, which costs a device
            synchronisation for each new cu_seqlens tensor, and cannot be captured in a graph. The Ascend kernel makes
            tables of its own, at the same cost, and does not use this one.
        head_first: layout of k, g and beta.
        output_head_first: layout of the result.

    Returns:
        A `[B, T, HV, chunk_size]`, or `[B, HV, T, chunk_size]` with `output_head_first`; contiguous. Exactly 1 on the
        diagonal and 0 above it, so a short chunk of n rows has zeros in columns >= n. Rows outside every sequence: 0.

    No gradient flows: the backward pass of the Gated Delta Rule uses A itself, not this operator.
    A NaN or Inf in one token of a head spoils that head's results in its own chunk only, those of earlier tokens and
    the zeros and ones on and above the diagonal included.

    Raises:
        TypeError, ValueError: bad types, shapes, devices or offsets; nothing was launched then.
    """
    check_arguments(k, g, beta, cu_seqlens, chunk_size, output_dtype, chunk_indices, head_first, output_head_first)
    tensors = *(None if x is None else x.detach() for x in (k, g, beta)), cu_seqlens, chunk_indices
    arguments = (*tensors, chunk_size, output_dtype or k.dtype, head_first, output_head_first)
    if k.device.type == "meta":
        return _fake(*arguments)
    # Subclasses (fake tensors, results of collectives not yet waited for) have no memory until torch unwraps them.
    plain = all(x is None or type(x) in (torch.Tensor, torch.nn.Parameter) for x in tensors)
    return _run(*arguments) if plain and not torch.compiler.is_compiling() else _traced(*arguments)


def _result_shape(k, g, beta, chunk_size: int, head_first: bool, output_head_first: bool) -> tuple[int, ...]:
    time, heads = (2, 1) if head_first else (1, 2)
    values = next((x.shape[heads] for x in (g, beta) if x is not None), k.shape[heads])
    rows = (values, k.shape[time]) if output_head_first else (k.shape[time], values)
    return (k.shape[0], *rows, chunk_size)


def _run(
    k: torch.Tensor,
    g: torch.Tensor | None,
    beta: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    chunk_indices: torch.Tensor | None,
    chunk_size: int,
    output_dtype: torch.dtype,
    head_first: bool,
    output_head_first: bool,
) -> torch.Tensor:
    k, g, beta = (as_memory(x) for x in (k, g, beta))
    T = k.shape[2 if head_first else 1]
    if cu_seqlens is not None and values_are_checked(k.device):
        check_values(cu_seqlens, chunk_indices, T, chunk_size)
    if k.shape[0] == 0 or T == 0:
        return k.new_empty(_result_shape(k, g, beta, chunk_size, head_first, output_head_first), dtype=output_dtype)
    with torch.no_grad():
        return paths.run(paths.Call(k, g, beta, cu_seqlens, chunk_indices, chunk_size, output_dtype, head_first,
                                    output_head_first))


def _fake(k, g, beta, cu_seqlens, chunk_indices, chunk_size, output_dtype, head_first, output_head_first):
    return k.new_empty(_result_shape(k, g, beta, chunk_size, head_first, output_head_first), dtype=output_dtype)


# What torch.compile sees: one opaque node. Eager calls go around it, since dispatch costs tens of microseconds.
_traced = _run
if hasattr(torch.library, "custom_op"):  # torch >= 2.4; before, the graph breaks at the call
    _traced = torch.library.custom_op("mindspeed_kkt_plugin::kkt_solve", _run, mutates_args=())
    _traced.register_fake(_fake)
