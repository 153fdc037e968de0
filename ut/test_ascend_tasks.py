"""The task table of the Ascend kernel: every chunk of every head in exactly one task, at the right addresses."""
from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton.backends.ascend", reason="needs triton-ascend (pip install triton-ascend==3.2.0)")
from mindspeed_kkt_plugin.kernels import ascend  # noqa: E402
from ut.ascend_launch import launch  # noqa: E402
from ut.test_ascend_kernel import CASES  # noqa: E402

CHUNK = ascend.CHUNK


def place(tensor, b: int, t: int, h: int, head_first: bool) -> int:
    """First element of token t and head h, by torch's own strides."""
    return sum(i * stride for i, stride in zip((b, h, t) if head_first else (b, t, h), tensor.stride(), strict=False))


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
@given(lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=6), H=st.integers(1, 20), share=st.integers(1, 5),
       cores=st.integers(1, 30), head_first=st.booleans(), output_head_first=st.booleans())
def test_each_chunk_of_each_head_once(lengths, H, share, cores, head_first, output_head_first):
    ends = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    T, HV = ends[-1], H * share
    assume(T)
    made = launch(T=T, H=H, HV=HV, cu_seqlens=ends, num_cores=cores, head_first=head_first,
                  output_head_first=output_head_first)
    wanted = Counter((0, t, h, min(CHUNK, end - t)) for first, end in zip(ends, ends[1:], strict=False)
                     for t in range(first, end, CHUNK) for h in range(HV))
    assert chunks_of(made, T, HV) == wanted
    heads, lanes = made.constants["HEADS"], made.constants["LANES"]
    masked = False
    for key, value, row, tokens, there, phase, *_ in made.args["tasks"].tolist():
        t, h = divmod(value, HV)
        assert key == place(made.args["k"], 0, t, h // share, head_first)
        assert row == place(made.args["out"], 0, t, h, output_head_first)
        assert phase == h % share
        chunks = -(-tokens // CHUNK)
        assert chunks * heads <= lanes and there <= heads
        masked |= tokens % CHUNK > 0 or there < heads or chunks * heads % 2 > 0
    assert made.constants["MASK"] == masked


@settings(deadline=None, max_examples=300)
@given(chunks=st.lists(st.integers(1, 40), min_size=1, max_size=6), tail=st.integers(1, CHUNK),
       most=st.integers(1, 4), tasks_each=st.integers(1, 40), cores=st.integers(1, 30))
def test_groups_are_few_and_as_even_as_there_is_room(chunks, tail, most, tasks_each, cores):
    ends = [CHUNK * sum(chunks[:i]) for i in range(len(chunks) + 1)]
    ends[-1] += tail - CHUNK
    sequences = [(0, *edge) for edge in zip(ends, ends[1:], strict=False)]
    groups = ascend._groups(sequences, most, tasks_each, cores)
    assert sorted(t for b, first, end in groups for t in range(first, end, CHUNK)) == list(range(0, ends[-1], CHUNK))
    sizes = [-(-(end - first) // CHUNK) for _, first, end in groups]
    least = sum(-(-count // most) for count in chunks)
    room = -(-least * tasks_each // cores) * cores // tasks_each
    assert max(sizes) <= most
    assert len(groups) == min(room, sum(chunks))
    # No other division into so many groups has a smaller largest one.
    smaller = max(sizes) - 1
    assert smaller == 0 or sum(-(-count // smaller) for count in chunks) > room
    # The sequence with the tail has it in one of its smallest groups.
    _, first, end = next(group for group in groups if group[2] == ends[-1])
    of_last = [size for size, group in zip(sizes, groups, strict=True) if group[1] >= ends[-2]]
    assert -(-(end - first) // CHUNK) == min(of_last)


@pytest.mark.parametrize("head_first", [False, True])
def test_batches(head_first):
    made = launch(B=3, T=200, H=2, HV=4, head_first=head_first, output_head_first=head_first)
    assert chunks_of(made, 200, 4) == Counter(
        (b, t, h, min(64, 200 - t)) for b in range(3) for t in range(0, 200, 64) for h in range(4))
    for key, value, row, *_ in made.args["tasks"].tolist():
        (b, t), h = divmod(value // 4, 200), value % 4
        assert key == place(made.args["k"], b, t, h // 2, head_first)
        assert row == place(made.args["out"], b, t, h, head_first)


@pytest.mark.parametrize("T, HV, cores", [(16384, 8, 24), (4096, 4, 24), (8192, 2, 24), (4096, 8, 20), (16384, 32, 24)])
def test_rounds_are_full_of_even_tasks_and_begin_and_end_with_the_short_ones(T, HV, cores):
    made = launch(T=T, HV=HV, num_cores=cores)
    chunks = (made.args["tasks"][:, 3] // CHUNK).tolist()
    assert len(chunks) % cores == 0
    assert max(chunks) - min(chunks) <= 1
    rounds = [sum(chunks[i:i + cores]) for i in range(0, len(chunks), cores)]
    assert rounds[-1] == min(rounds)
    assert len(rounds) == 1 or rounds[0] == min(rounds[:-1])
    assert chunks[-cores:] == sorted(chunks[-cores:], reverse=True)


@pytest.mark.parametrize("lanes, T, HV", [(8, 2048, 4), (16, 8192, 8), (32, 16384, 8)])
def test_more_lanes_a_task_where_cores_have_many(lanes, T, HV):
    assert launch(T=T, HV=HV).constants["LANES"] == lanes


def test_compiled_cases_reach_every_program():
    """test_ascend_kernel.py executes every width, with and without masks."""
    reached = set()
    for case in CASES.values():
        shape = {name: case[name] for name in ("B", "T", "H", "HV", "cu_seqlens", "head_first") if name in case}
        constants = launch(**shape, num_cores=2).constants
        reached.add((constants["LANES"], constants["MASK"]))
    assert reached == {(lanes, masked) for lanes in ascend.ROUNDS for masked in (False, True)}
