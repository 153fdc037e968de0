"""How a call becomes tasks of the Ascend kernel (ascend_kernel.py). Nothing is launched here."""
from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from ..varlen import sequence_offsets
from .ascend_kernel import kkt_solve_kernel
from .launch import Launch
from .shared import INTERPRETED

CHUNK = 64
LANES = 16  # (chunk, head) pairs a task
WINDOW = 8  # heads of g and beta read together: 32 bytes of fp32
SLAB_BYTES = 256  # of one token's keys in a product: 128 channels of 16 bits, 64 of fp32
# Blocks of 32x32 fp32 that each program keeps in global memory between cube and vector cores, by buffer.
SLOTS = {"diagonal": 2 * LANES, "cross": LANES, "inverse": 2 * LANES, "lower": LANES, "product": LANES}


class Layout(NamedTuple):
    """Sizes and layouts that decide addresses."""

    T: int
    H: int
    HV: int
    K: int
    head_first: bool
    output_head_first: bool

    def key(self, b: int, t: int, h: int) -> int:
        """First element in k of token t and key head h."""
        return ((b * self.H + h) * self.T + t) * self.K if self.head_first else ((b * self.T + t) * self.H + h) * self.K

    def value(self, b: int, t: int, h: int) -> int:
        """First element in g and beta."""
        return (b * self.T + t) * self.HV + h

    def row(self, b: int, t: int, h: int) -> int:
        """First element in the result."""
        return CHUNK * (((b * self.HV + h) * self.T + t) if self.output_head_first else self.value(b, t, h))

    @property
    def key_strides(self) -> tuple[int, int]:
        """Elements from token to token and from head to head in k."""
        return (self.K, self.T * self.K) if self.head_first else (self.H * self.K, self.K)

    @property
    def row_strides(self) -> tuple[int, int]:
        """Elements from token to token and from head to head in the result."""
        return (CHUNK, self.T * CHUNK) if self.output_head_first else (self.HV * CHUNK, CHUNK)

    @property
    def window(self) -> int:
        return min(WINDOW, 1 << (self.HV.bit_length() - 1))


class Tasks(NamedTuple):
    """A table for the kernel (see its docstring) and what all its tasks share."""

    table: torch.Tensor
    by_heads: bool
    masked: bool


def refuse(k, g, beta, cu_seqlens, chunk_indices, *, chunk_size: int, **options) -> str | None:
    """Why the kernel does not take a checked call, or None."""
    if INTERPRETED:
        return "it uses extract_slice and insert_slice, which Triton's interpreter lacks"
    if chunk_size != CHUNK:
        return f"it takes chunk_size {CHUNK}; the two-call chain takes {chunk_size}"
    return None


def plan(
    k: torch.Tensor,
    g: torch.Tensor | None,
    beta: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    chunk_indices: torch.Tensor | None,
    *,
    chunk_size: int,
    output_dtype: torch.dtype,
    head_first: bool,
    output_head_first: bool,
    num_cores: int,
    precision: str = "ieee",
) -> tuple[torch.Tensor, list[Launch]]:
    """The result tensor and the launches that fill it: full groups of 16 chunks, then what is left, at most two.

    The task tables come from the host, so a packed call costs one device synchronisation per new cu_seqlens and
    cannot be captured in a graph. Tensors on the meta device give a plan to look at; its tables are real.
    """
    k = k.contiguous()
    if head_first:
        g, beta = (None if x is None else x.transpose(1, 2) for x in (g, beta))
    g, beta = (None if x is None else x.contiguous() for x in (g, beta))
    B, T, H = k.shape[0], k.shape[2 if head_first else 1], k.shape[1 if head_first else 2]
    HV = next((x.shape[2] for x in (g, beta) if x is not None), H)
    # Absent gates are rare: a small tensor of zeros or ones is cheaper than kernels of their own.
    g = k.new_zeros((B, T, HV), dtype=torch.float32) if g is None else g
    beta = k.new_ones((B, T, HV), dtype=torch.float32) if beta is None else beta
    out = k.new_empty((B, HV, T, CHUNK) if output_head_first else (B, T, HV, CHUNK), dtype=output_dtype)
    sequences = _sequences(B, T, cu_seqlens)
    covered = sequences[-1][2] if sequences else 0
    if cu_seqlens is not None and covered < T:
        out.narrow(2 if output_head_first else 1, covered, T - covered).zero_()

    layout = Layout(T, H, HV, k.shape[3], head_first, output_head_first)
    place = "cpu" if k.is_meta else str(k.device)
    eye = _eye(place)
    scratch = {name: k.new_empty((num_cores, slots, 32, 32), dtype=torch.float32) for name, slots in SLOTS.items()}
    return out, [_launch(k, g, beta, out, scratch, eye, tasks, layout, num_cores)
                 for tasks in _tasks(sequences, layout, place)]


def _launch(k, g, beta, out, scratch, eye, tasks: Tasks, layout: Layout, num_cores: int) -> Launch:
    (k_token, k_head), (o_token, o_head) = layout.key_strides, layout.row_strides
    by_heads = tasks.by_heads
    slab = SLAB_BYTES // k.element_size()
    count = tasks.table.shape[0]
    return Launch(
        name=f"kkt_solve_{'heads' if by_heads else 'chunks'}", kernel=kkt_solve_kernel, grid=(min(count, num_cores),),
        args=dict(k=k, g=g, beta=beta, out=out, **scratch, eye=eye, tasks=tasks.table, num_tasks=count,
                  k_lane=k_head if by_heads else CHUNK * k_token, o_lane=o_head if by_heads else CHUNK * o_token,
                  one=1),
        constants=dict(K=layout.K, KS=min(slab, max(16, 1 << (layout.K - 1).bit_length())), K_TOKEN=k_token,
                       SHARE=layout.HV // layout.H if by_heads else 1, WINDOW=layout.window,
                       G_SPACE=CHUNK // 2 * layout.HV, G_TOKEN=layout.HV, O_TOKEN=o_token, HEADS=by_heads,
                       MASK=tasks.masked),
    )


def _sequences(B: int, T: int, cu_seqlens: torch.Tensor | None) -> tuple[tuple[int, int, int], ...]:
    """(batch, first token, end) of every sequence that has tokens."""
    if cu_seqlens is None:
        return tuple((b, 0, T) for b in range(B))
    offsets = sequence_offsets(cu_seqlens)
    return tuple((0, a, b) for a, b in zip(offsets, offsets[1:], strict=False) if a < b)


@lru_cache(maxsize=64)
def _tasks(sequences: tuple[tuple[int, int, int], ...], layout: Layout, place: str) -> tuple[Tasks, ...]:
    """Task tables on `place`: by chunks where 16 full chunks of a head follow each other, by heads elsewhere.

    By chunks all lanes are always in use and both halves of a chunk are inverted together. By heads a task takes any
    chunk, short ones too, and up to 16 heads of it: what is left of a sequence is few tasks, however many heads.
    """
    share, window = layout.HV // layout.H, layout.window
    chunks, heads = [], []
    for b, first, end in sequences:
        grouped = first + (end - first) // (LANES * CHUNK) * (LANES * CHUNK)
        for t in range(first, grouped, LANES * CHUNK):
            for h in range(layout.HV):
                start = min(h // window * window, layout.HV - window)
                chunks.append((layout.key(b, t, h // share), layout.value(b, t, start), layout.row(b, t, h),
                               h - start, LANES, CHUNK, 0, 0))
        for t in range(grouped, end, CHUNK):
            for h in range(0, layout.HV, LANES):
                heads.append((layout.key(b, t, h // share), layout.value(b, t, h), layout.row(b, t, h),
                              0, min(LANES, layout.HV - h), min(CHUNK, end - t), h % share, 0))
    found = []
    for by_heads, rows in ((False, chunks), (True, heads)):
        if rows:
            masked = by_heads and any(row[4] < LANES or row[5] < CHUNK for row in rows)
            found.append(Tasks(torch.tensor(rows, dtype=torch.int64, device="cpu").to(place), by_heads, masked))
    return tuple(found)


@lru_cache(maxsize=8)
def _eye(place: str) -> torch.Tensor:
    """A 32x32 identity, then 32x32 zeros."""
    return torch.eye(64, 32, dtype=torch.float32, device="cpu").to(place)
