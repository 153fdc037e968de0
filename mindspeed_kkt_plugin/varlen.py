"""Packed sequences: from cumulative offsets to the list of chunks, and the rows that each chunk holds.

Only index arithmetic lives here; what is legal to pass is decided in `checks.py`.
"""
from __future__ import annotations

import weakref

import torch

# A model calls the operator once a layer with the same offsets tensor: remembering the last few tables
# keeps host synchronisations at one per new tensor instead of one per layer.
_REMEMBERED = 8
_tables: list[tuple[weakref.ref, int, int, torch.Tensor]] = []


def prepare_chunk_indices(cu_seqlens: torch.Tensor, chunk_size: int) -> torch.Tensor:
    """List the chunks of packed sequences.

    cu_seqlens: int32 or int64 `[N + 1]`, offsets of N sequences, starting at 0; zero-length sequences are allowed
    anywhere and own no chunk. Returns `[NT, 2]` of the same dtype and device: (sequence id, chunk id inside it).
    Costs one device synchronisation per new offsets tensor; later calls with the same, unmodified tensor are free.
    """
    # Inference tensors carry no version counter, so a change in place could not be noticed: compute anew.
    version = None if cu_seqlens.is_inference() else cu_seqlens._version
    if version is not None:
        for ref, seen_version, seen_size, table in _tables:
            if ref() is cu_seqlens and seen_version == version and seen_size == chunk_size:
                return table
    # On the host, then a blocking copy: the table is complete before any stream can read it.
    offsets = cu_seqlens.detach().to("cpu", torch.int64)
    counts = (offsets.diff() + chunk_size - 1) // chunk_size
    sequence = torch.repeat_interleave(torch.arange(counts.numel()), counts)
    first = counts.cumsum(0) - counts
    table = torch.stack([sequence, torch.arange(sequence.numel()) - first[sequence]], dim=1)
    table = table.to(device=cu_seqlens.device, dtype=cu_seqlens.dtype)
    if version is not None and not table.is_inference():
        _tables[:] = [entry for entry in _tables if entry[0]() is not None][-_REMEMBERED + 1:]
        _tables.append((weakref.ref(cu_seqlens), version, chunk_size, table))
    return table


def chunk_rows(
    length: int, chunk_size: int, cu_seqlens: torch.Tensor | None = None, device: torch.device | str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token positions of every chunk: int64 `[NT, chunk_size]`, and bool of the same shape, False past a tail.

    Positions past a tail are 0, so that they can index; mask them with the second tensor.
    """
    steps = torch.arange(chunk_size)
    if cu_seqlens is None:
        rows = torch.arange(0, length, chunk_size)[:, None] + steps
        valid = rows < length
    else:
        table = prepare_chunk_indices(cu_seqlens, chunk_size).to("cpu", torch.int64)
        offsets = cu_seqlens.detach().to("cpu", torch.int64)
        rows = (offsets[table[:, 0]] + table[:, 1] * chunk_size)[:, None] + steps
        valid = rows < offsets[table[:, 0] + 1][:, None]
    return torch.where(valid, rows, 0).to(device), valid.to(device)
