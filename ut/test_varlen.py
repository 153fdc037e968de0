"""The table of chunks: zero-length sequences, order, and what is remembered between calls."""
from __future__ import annotations

import pytest
import torch

from mindspeed_kkt_plugin.varlen import chunk_rows, prepare_chunk_indices

CASES = {
    "two": ([0, 5, 9], 4, [(0, 0), (0, 1), (1, 0)]),
    "zero_between": ([0, 5, 5, 9], 4, [(0, 0), (0, 1), (2, 0)]),
    "zero_around": ([0, 0, 4, 8, 8], 4, [(1, 0), (2, 0)]),
    "none": ([0], 4, []),
    "all_zero": ([0, 0, 0], 4, []),
    "one_token_each": ([0, 1, 2, 3], 64, [(0, 0), (1, 0), (2, 0)]),
}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
@pytest.mark.parametrize("case", CASES)
def test_table(case, dtype, device):
    offsets, chunk_size, expected = CASES[case]
    table = prepare_chunk_indices(torch.tensor(offsets, dtype=dtype, device=device), chunk_size)
    assert table.dtype == dtype and table.shape == (len(expected), 2) and table.device.type == device
    assert [tuple(row) for row in table.tolist()] == expected


def test_chunks_restart_at_every_sequence():
    assert prepare_chunk_indices(torch.tensor([0, 781, 2048]), 32).shape[0] == 65


def test_rows_cover_every_packed_token_once():
    rows, valid = chunk_rows(20, 4, torch.tensor([0, 5, 5, 18]))
    assert rows[valid].tolist() == list(range(18))
    rows, valid = chunk_rows(10, 4)
    assert rows[valid].tolist() == list(range(10)) and valid.sum(1).tolist() == [4, 4, 2]


def test_same_tensor_gives_the_same_table_object(device):
    offsets = torch.tensor([0, 30, 64], device=device)
    first = prepare_chunk_indices(offsets, 16)
    assert prepare_chunk_indices(offsets, chunk_size=16) is first
    assert prepare_chunk_indices(offsets, 64) is not first
    assert prepare_chunk_indices(offsets, 16) is first


def test_a_change_in_place_is_noticed():
    offsets = torch.tensor([0, 30, 64])
    prepare_chunk_indices(offsets, 16)
    offsets[1] = 16
    assert prepare_chunk_indices(offsets, 16).tolist() == [[0, 0], [1, 0], [1, 1], [1, 2]]


def test_tables_of_freed_tensors_are_never_returned():
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):  # freed and reallocated at recycled addresses and ids
        lengths = torch.randint(0, 40, (8,), generator=generator)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        table = prepare_chunk_indices(offsets, 16)
        assert table.shape[0] == sum(-(-n // 16) for n in lengths.tolist())
        del offsets, table


def test_inference_tensors_are_not_remembered():
    with torch.inference_mode():
        offsets = torch.tensor([0, 16])
        prepare_chunk_indices(offsets, 16)
        offsets[1] = 32
        assert prepare_chunk_indices(offsets, 16).shape[0] == 2
