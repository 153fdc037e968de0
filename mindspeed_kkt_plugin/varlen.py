"""Packed sequences: from cumulative offsets to the list of chunks, and the rows that each chunk holds.

Only index arithmetic lives here; what is legal to pass is decided in `checks.py`.
"""
from __future__ import annotations

import weakref

import torch

# A model calls the operator once a layer with the same offsets tensor: remembering what was last made from a few of
# them keeps host synchronisations at one per new tensor instead of one per layer.
_REMEMBERED = 16
_made: list[tuple[weakref.ref, int, object, object]] = []


def remember(cu_seqlens: torch.Tensor, key: object, make):
    """make(offsets on the host), or what it returned for this same, unmodified tensor and key before."""
    # Inference tensors carry no version counter, so a change in place could not be noticed: compute anew.
    version = None if cu_seqlens.is_inference() else cu_seqlens._version
    if version is not None:
        for ref, seen_version, seen_key, value in _made:
            if ref() is cu_seqlens and seen_version == version and seen_key == key:
                return value
    value = make(cu_seqlens.detach().to("cpu", torch.int64))
    if version is not None and not (isinstance(value, torch.Tensor) and value.is_inference()):
        _made[:] = [entry for entry in _made if entry[0]() is not None][-_REMEMBERED + 1:]
        _made.append((weakref.ref(cu_seqlens), version, key, value))
    return value


def prepare_chunk_indices(cu_seqlens: torch.Tensor, chunk_size: int) -> torch.Tensor:
    """List the chunks of packed sequences.

    cu_seqlens: int32 or int64 `[N + 1]`, offsets of N sequences, starting at 0; zero-length sequences are allowed
    anywhere and own no chunk. Returns `[NT, 2]` of the same dtype and device: (sequence id, chunk id inside it).
    Costs one device synchronisation per new offsets tensor; later calls with the same, unmodified tensor are free.
    """
    def make(offsets: torch.Tensor) -> torch.Tensor:
        # On the host (named, since the program may have set another default device), then a blocking copy: the table
        # is complete before any stream can read it.
        counts = (offsets.diff() + chunk_size - 1) // chunk_size
        sequence = torch.repeat_interleave(torch.arange(counts.numel(), device="cpu"), counts)
        first = counts.cumsum(0) - counts
        table = torch.stack([sequence, torch.arange(sequence.numel(), device="cpu") - first[sequence]], dim=1)
        return table.to(device=cu_seqlens.device, dtype=cu_seqlens.dtype)

    return remember(cu_seqlens, chunk_size, make)


def sequence_offsets(cu_seqlens: torch.Tensor) -> tuple[int, ...]:
    """The offsets as integers on the host; the same cost as `prepare_chunk_indices`."""
    return remember(cu_seqlens, "offsets", lambda offsets: tuple(offsets.tolist()))


def chunk_rows(
    length: int, chunk_size: int, cu_seqlens: torch.Tensor | None = None, device: torch.device | str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token positions of every chunk: int64 `[NT, chunk_size]`, and bool of the same shape, False past a tail.

    Positions past a tail are 0, so that they can index; mask them with the second tensor.
    """
    steps = torch.arange(chunk_size, device="cpu")
    if cu_seqlens is None:
        rows = torch.arange(0, length, chunk_size, device="cpu")[:, None] + steps
        valid = rows < length
    else:
        table = prepare_chunk_indices(cu_seqlens, chunk_size).to("cpu", torch.int64)
        offsets = cu_seqlens.detach().to("cpu", torch.int64)
        rows = (offsets[table[:, 0]] + table[:, 1] * chunk_size)[:, None] + steps
        valid = rows < offsets[table[:, 0] + 1][:, None]
    return torch.where(valid, rows, 0).to(device), valid.to(device)
