"""Refuses bad arguments before anything is launched: each error names the argument, what it was and what is allowed.

What a particular kernel cannot do is not decided here but by that kernel's `refuse`.
"""
from __future__ import annotations

import os

import torch

from .varlen import prepare_chunk_indices, sequence_offsets

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
CHUNK_SIZES = (16, 32, 64)
MAX_K = 256


def _names(dtypes) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def as_memory(x: torch.Tensor | None) -> torch.Tensor | None:
    """x without gradient, its values as its memory holds them: torch may keep a minus sign in a flag of the view."""
    return None if x is None else x.detach().resolve_neg()


def _tensor(name: str, x, dtypes, device: torch.device | None = None) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
    if x.layout != torch.strided:
        raise TypeError(f"{name} has layout {_names([x.layout])}; allowed: strided")
    if x.dtype not in dtypes:
        raise TypeError(f"{name} has dtype {_names([x.dtype])}; allowed: {_names(dtypes)}")
    if device is not None and x.device != device:
        raise ValueError(f"{name} is on {x.device} but k is on {device}; all tensors must be on one device")


def check_arguments(
    k, g, beta, cu_seqlens, chunk_size, output_dtype, chunk_indices, head_first, output_head_first
) -> None:
    """Everything that attributes alone can tell; no device is touched. Raises TypeError or ValueError."""
    _tensor("k", k, DTYPES)
    heads_axis = "[B, H, T, K]" if head_first else "[B, T, H, K]"
    if k.dim() != 4:
        raise ValueError(f"k has shape {tuple(k.shape)}; it must be {heads_axis}")
    B, T, H, K = (k.shape[0], k.shape[2], k.shape[1], k.shape[3]) if head_first else k.shape
    if not 1 <= K <= MAX_K:
        raise ValueError(f"k has K = {K} (last axis); allowed: 1 to {MAX_K}")
    if H < 1:
        raise ValueError(f"k has shape {tuple(k.shape)} ({heads_axis}): at least one head is needed")
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size not in CHUNK_SIZES:
        raise ValueError(f"chunk_size is {chunk_size!r}; allowed: an int of {', '.join(map(str, CHUNK_SIZES))}")
    if output_dtype is not None and output_dtype not in DTYPES:
        raise TypeError(f"output_dtype is {output_dtype!r}; allowed: None (that of k), {_names(DTYPES)}")
    for name, flag in (("head_first", head_first), ("output_head_first", output_head_first)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False, got {flag!r}")
    gate_axis = "[B, HV, T]" if head_first else "[B, T, HV]"
    for name, x in (("g", g), ("beta", beta)):
        if x is None:
            continue
        _tensor(name, x, DTYPES, k.device)
        if x.dim() != 3:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be {gate_axis}")
        rows, heads = (x.shape[2], x.shape[1]) if head_first else (x.shape[1], x.shape[2])
        if (x.shape[0], rows) != (B, T):
            raise ValueError(f"{name} has shape {tuple(x.shape)}; with k {tuple(k.shape)} it must be {gate_axis} "
                             f"with B = {B}, T = {T}")
        if heads == 0 or heads % H:
            raise ValueError(f"{name} has HV = {heads} value heads; HV must be a multiple of k's H = {H}")
    if g is not None and beta is not None and g.shape != beta.shape:
        raise ValueError(f"g {tuple(g.shape)} and beta {tuple(beta.shape)} must have the same shape")
    _check_packing(B, cu_seqlens, chunk_indices, k.device)


def check_matrix(A, cu_seqlens, output_dtype) -> None:
    """Arguments of `solve_tril`, by attributes alone. Raises TypeError or ValueError."""
    _tensor("A", A, DTYPES)
    if A.dim() != 4 or A.shape[3] not in CHUNK_SIZES:
        raise ValueError(f"A has shape {tuple(A.shape)}; it must be [B, T, HV, BT] with BT among "
                         f"{', '.join(map(str, CHUNK_SIZES))}")
    if output_dtype is not None and output_dtype not in DTYPES:
        raise TypeError(f"output_dtype is {output_dtype!r}; allowed: None (that of A), {_names(DTYPES)}")
    _check_packing(A.shape[0], cu_seqlens, None, A.device, "A")


def _check_packing(B: int, cu_seqlens, chunk_indices, device: torch.device, owner: str = "k") -> None:
    if cu_seqlens is None:
        if chunk_indices is not None:
            raise ValueError("chunk_indices needs cu_seqlens; it lists the chunks of packed sequences")
        return
    _tensor("cu_seqlens", cu_seqlens, (torch.int32, torch.int64), device)
    if cu_seqlens.dim() != 1 or cu_seqlens.numel() == 0:
        raise ValueError(f"cu_seqlens has shape {tuple(cu_seqlens.shape)}; it must be [number of sequences + 1]")
    if B != 1:
        raise ValueError(f"{owner} has B = {B}; packed sequences (cu_seqlens) need B = 1")
    if chunk_indices is not None:
        _tensor("chunk_indices", chunk_indices, (torch.int32, torch.int64), device)
        if chunk_indices.dim() != 2 or chunk_indices.shape[1] != 2:
            raise ValueError(f"chunk_indices has shape {tuple(chunk_indices.shape)}; it must be [NT, 2]")


def values_are_checked(device: torch.device) -> bool:
    """Reading offsets from an accelerator stalls it: there only with MINDSPEED_KKT_CHECK=1, on the CPU always.

    The Ascend kernel's plan has to read them and checks them itself.
    """
    return device.type == "cpu" or os.environ.get("MINDSPEED_KKT_CHECK", "0") == "1"


def check_offsets(offsets: tuple[int, ...], T: int) -> None:
    """What only the offsets' values can tell. Raises ValueError."""
    if offsets[0] != 0:
        raise ValueError(f"cu_seqlens starts at {offsets[0]}; it must start at 0")
    for i, (first, end) in enumerate(zip(offsets, offsets[1:], strict=False), 1):
        if end < first:
            raise ValueError(f"cu_seqlens decreases from {first} to {end} at index {i}; "
                             "offsets may repeat but not decrease")
    if offsets[-1] > T:
        raise ValueError(f"cu_seqlens ends at {offsets[-1]}; it must not exceed T = {T}")


def check_values(cu_seqlens, chunk_indices, T: int, chunk_size: int) -> None:
    """`check_offsets`, and that chunk_indices lists their chunks (device synchronisations). Raises ValueError."""
    check_offsets(sequence_offsets(cu_seqlens), T)
    if chunk_indices is None:
        return
    table = prepare_chunk_indices(cu_seqlens, chunk_size).to("cpu", torch.int64)
    given = chunk_indices.detach().to("cpu", torch.int64)
    # Any order is fine, since every chunk is independent.
    if given.shape != table.shape or sorted(given.tolist()) != table.tolist():
        raise ValueError(f"chunk_indices ({given.shape[0]} rows) does not list the {table.shape[0]} chunks of "
                         f"cu_seqlens at chunk_size = {chunk_size}, each once as (sequence id, chunk id)")
