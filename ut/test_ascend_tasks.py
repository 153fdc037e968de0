"""The task table of the Ascend kernel: every chunk of every head in exactly one task, no task larger than its lanes."""
from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton.backends.ascend", reason="needs triton-ascend (pip install triton-ascend==3.2.0)")
from mindspeed_kkt_plugin.kernels import ascend  # noqa: E402

CHUNK = ascend.CHUNK


def launch(B=1, T=128, H=1, HV=None, cu_seqlens=None, num_cores=24):
    """The kernel's launch for a call of this shape."""
    HV = HV or H
    k = torch.empty((B, T, H, 32), dtype=torch.bfloat16, device="meta")
    g = torch.empty((B, T, HV), dtype=torch.float32, device="meta")
    offsets = None if cu_seqlens is None else torch.tensor(cu_seqlens)
    _, launches = ascend.plan(k, g, g, offsets, None, chunk_size=CHUNK, output_dtype=k.dtype, head_first=False,
                              output_head_first=False, num_cores=num_cores)
    return launches[0]


def chunks_of(launch, T, HV):
    """(batch, first token, head, tokens) of every chunk and head in the table, with how often it is there."""
    found = Counter()
    for _, value, _, tokens, heads, *_ in launch.args["tasks"].tolist():
        token, head = divmod(value, HV)
        for first in range(0, tokens, CHUNK):
            for h in range(head, head + heads):
                found[(*divmod(token + first, T), h, min(CHUNK, tokens - first))] += 1
    return found


@settings(deadline=None, max_examples=200)
@given(lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=6), HV=st.integers(1, 40), cores=st.integers(1, 30))
def test_each_chunk_of_each_head_once(lengths, HV, cores):
    ends = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    if not ends[-1]:
        return
    made = launch(T=ends[-1], HV=HV, cu_seqlens=ends, num_cores=cores)
    wanted = Counter((0, t, h, min(CHUNK, end - t)) for first, end in zip(ends, ends[1:], strict=False)
                     for t in range(first, end, CHUNK) for h in range(HV))
    assert chunks_of(made, ends[-1], HV) == wanted
    heads, lanes = made.constants["HEADS"], made.constants["LANES"]
    masked = False
    for *_, tokens, there, _, _, _ in made.args["tasks"].tolist():
        chunks = -(-tokens // CHUNK)
        assert chunks * heads <= lanes and there <= heads
        masked |= tokens % CHUNK > 0 or there < heads or chunks * heads % 2 > 0
    assert made.constants["MASK"] == masked


def test_batches_do_not_run_into_each_other():
    made = launch(B=3, T=200, HV=4)
    assert chunks_of(made, 200, 4) == Counter(
        (b, t, h, min(64, 200 - t)) for b in range(3) for t in range(0, 200, 64) for h in range(4))


@pytest.mark.parametrize("T, HV, cores", [(16384, 8, 24), (4096, 4, 24), (8192, 2, 24), (4096, 8, 20)])
def test_rounds_are_full_and_end_with_short_tasks(T, HV, cores):
    made = launch(T=T, HV=HV, num_cores=cores)
    tokens = made.args["tasks"][:, 3].tolist()
    assert len(tokens) % cores == 0
    assert tokens == sorted(tokens, reverse=True)
    groups = -(-T // CHUNK) * -(-HV // made.constants["HEADS"])  # a chunk of as many heads as a task takes
    assert tokens[-1] <= -(-groups // len(tokens)) * CHUNK
