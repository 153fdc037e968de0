"""How a call becomes tasks of the Ascend kernel (ascend_kernel.py). Nothing is launched here."""
from __future__ import annotations

import heapq
from functools import lru_cache
from typing import NamedTuple

import torch

from ..checks import check_offsets
from ..varlen import sequence_offsets
from .ascend_kernel import kkt_solve_kernel
from .ascend_scratch import SLOTS
from .launch import Launch
from .shared import INTERPRETED

READS_CHUNK_INDICES = False  # the task table takes their place
CHUNK = 64
# By lanes, the most (chunk, head) pairs of a task: us of a launch apart from its rounds of tasks, and of one round.
# Estimated for K = 128 in bf16; elsewhere the choice was up to 5 % off (most for 256 channels of fp32).
ROUNDS = {32: (29.0, 19.0), 16: (22.0, 12.9), 8: (19.0, 9.7)}
SLAB_BYTES = 256  # of one token's keys in a product: 128 channels of 16 bits, 64 of fp32


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

    def heads(self, lanes: int) -> int:
        """Heads of a chunk in a task of so many lanes: as many as there are, in powers of 2; two chunks always fit."""
        return min(lanes // 2, 1 << (self.HV - 1).bit_length())


class Tasks(NamedTuple):
    """A table for the kernel (see its docstring) and what all its tasks share."""

    table: torch.Tensor
    lanes: int
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
    """The result tensor and the launch that fills it.

    The task table comes from the host, so a packed call costs one device synchronisation per new cu_seqlens and
    cannot be captured in a graph. Tensors on the meta device give a plan to look at; its table is real.
    """
    if precision != "ieee":
        raise ValueError(f"precision is {precision!r}; the Ascend kernel has 'ieee' only")
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

    if not sequences:
        return out, []
    layout = Layout(T, H, HV, k.shape[3], head_first, output_head_first)
    place = "cpu" if k.is_meta else str(k.device)
    tasks = _tasks(sequences, layout, num_cores, place)
    return out, [_launch(k, g, beta, out, tasks, layout, num_cores, place)]


def _launch(k, g, beta, out, tasks: Tasks, layout: Layout, num_cores: int, place: str) -> Launch:
    (k_token, k_head), (o_token, o_head) = layout.key_strides, layout.row_strides
    slab = SLAB_BYTES // k.element_size()
    count = tasks.table.shape[0]
    cores = min(count, num_cores)
    scratch = {name: k.new_empty((cores, tasks.lanes * size), dtype=torch.float32) for name, size in SLOTS.items()}
    return Launch(
        name="kkt_solve", kernel=kkt_solve_kernel, grid=(cores,),
        args=dict(k=k, g=g, beta=beta, out=out, **scratch, eye=_eye(place, torch.float32), eye_g=_eye(place, g.dtype),
                  eye_beta=_eye(place, beta.dtype), tasks=tasks.table, num_tasks=count, k_head=k_head,
                  o_head=o_head, one=1),
        constants=dict(K=layout.K, KS=min(slab, max(16, 1 << (layout.K - 1).bit_length())), K_TOKEN=k_token,
                       SHARE=layout.HV // layout.H, HEADS=layout.heads(tasks.lanes), LANES=tasks.lanes,
                       G_TOKEN=layout.HV, O_TOKEN=o_token, MASK=tasks.masked),
    )


def _sequences(B: int, T: int, cu_seqlens: torch.Tensor | None) -> tuple[tuple[int, int, int], ...]:
    """(batch, first token, end) of every sequence that has tokens."""
    if cu_seqlens is None:
        return tuple((b, 0, T) for b in range(B))
    offsets = sequence_offsets(cu_seqlens)
    check_offsets(offsets, T)
    return tuple((0, a, b) for a, b in zip(offsets, offsets[1:], strict=False) if a < b)


@lru_cache(maxsize=64)
def _tasks(sequences: tuple[tuple[int, int, int], ...], layout: Layout, num_cores: int, place: str) -> Tasks:
    """The task table on `place`. A lane takes less time the more there are in a task; small tasks fill more cores."""
    def estimate(lanes: int) -> float:
        beyond, each = ROUNDS[lanes]
        heads = layout.heads(lanes)
        return beyond + each * _rounds(sequences, lanes // heads, -(-layout.HV // heads), num_cores)

    lanes = min(ROUNDS, key=estimate)
    heads, share = layout.heads(lanes), layout.HV // layout.H
    rows = [(layout.key(b, t, h // share), layout.value(b, t, h), layout.row(b, t, h), end - t,
             min(heads, layout.HV - h), h % share, 0, 0)
            for b, t, end in _groups(sequences, lanes // heads, -(-layout.HV // heads), num_cores)
            for h in range(0, layout.HV, heads)]
    masked = any(row[3] % CHUNK or row[4] < heads or row[3] // CHUNK * heads % 2 for row in rows)
    return Tasks(torch.tensor(rows, dtype=torch.int64, device="cpu").to(place), lanes, masked)


def _rounds(sequences, most: int, tasks_each: int, num_cores: int) -> int:
    """Rounds of tasks on the cores, with groups of `most` chunks that make tasks_each tasks each."""
    groups = sum(-(-(end - first) // (most * CHUNK)) for _, first, end in sequences)
    return -(-groups * tasks_each // num_cores)


def _groups(sequences, most: int, tasks_each: int, num_cores: int) -> list[tuple[int, int, int]]:
    """Sequences cut into groups (batch, first token, end) of at most `most` chunks; each makes tasks_each tasks.

    A round of tasks on the cores takes the vector cores as long whatever the size of its tasks. So there are as few
    rounds as `most` allows, and in these as many tasks as there is room for. In the first and the last round the cube
    and the vector cores wait for each other: the smallest groups are the last round, the next smallest the first.
    """
    rounds = _rounds(sequences, most, tasks_each, num_cores)
    cuts = _parts(sequences, most, rounds * num_cores // tasks_each)
    groups = []
    for (b, first, end), parts in zip(sequences, cuts, strict=True):
        chunks = -(-(end - first) // CHUNK)
        edges = [first + -(-chunks * i // parts) * CHUNK for i in range(parts)] + [end]  # the tail in a small one
        groups += [(b, *edge) for edge in zip(edges, edges[1:], strict=False)]
    groups.sort(key=lambda group: group[1] - group[2])
    last = (rounds - 1) * num_cores // tasks_each
    before = max(0, last - num_cores // tasks_each)
    return groups[before:last] + groups[:before] + groups[last:]


def _parts(sequences, most: int, room: int) -> list[int]:
    """Into how many groups each sequence is cut: at most `most` chunks a group, and as even as `room` groups allow."""
    chunks = [-(-(end - first) // CHUNK) for _, first, end in sequences]
    parts = [-(-count // most) for count in chunks]
    largest = [(-count / part, i) for i, (count, part) in enumerate(zip(chunks, parts, strict=True))]
    heapq.heapify(largest)
    for _ in range(room - sum(parts)):
        size, i = largest[0]
        if size == -1:  # single chunks everywhere
            break
        parts[i] += 1
        heapq.heapreplace(largest, (-chunks[i] / parts[i], i))
    return parts


@lru_cache(maxsize=8)
def _eye(place: str, dtype: torch.dtype) -> torch.Tensor:
    """A 64x64 identity."""
    return torch.eye(CHUNK, dtype=dtype, device="cpu").to(place)
