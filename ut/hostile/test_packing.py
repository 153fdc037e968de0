"""Published failures of packed sequences and their chunk tables (ids V.. of cases.md)."""
from __future__ import annotations

import random

import pytest
import torch

from mindspeed_kkt_plugin import checks, varlen
from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin.varlen import prepare_chunk_indices
from ut.accuracy import assert_accurate, exact
from ut.inputs import Inputs, make_inputs

# The report's lengths; on a CPU its long sequences have fewer whole chunks and the same tails.
MIXED_TAILS = [2049, 1011, 513, 256, 128, 65, 32, 16, 7, 4, 5, 1]
SHORT_MIXED_TAILS = [65, 51, 65, 64, 64, 65, 32, 16, 7, 4, 5, 1]


def offsets(lengths) -> list[int]:
    return [sum(lengths[:i]) for i in range(len(lengths) + 1)]


def packed(cu_seqlens: list[int], device, chunk_size: int = 16, T: int | None = None, **options) -> Inputs:
    options = dict(H=1, K=16, device=device) | options
    return make_inputs("cosine_50", T=cu_seqlens[-1] if T is None else T, chunk_size=chunk_size,
                       cu_seqlens=cu_seqlens, **options)


def alone(inputs: Inputs, start: int, end: int) -> torch.Tensor:
    return fused(*(x[:, start:end] for x in inputs.args[:3]), None, inputs.chunk_size)


def hold(inputs: Inputs) -> torch.Tensor:
    out = fused(*inputs.args)
    assert_accurate(out, exact(inputs), inputs)
    return out


def test_V01_V12_mixed_tails_equal_their_own_runs_with_either_integer_type(device):
    many = device != "cpu"
    bounds = offsets(MIXED_TAILS if many else SHORT_MIXED_TAILS)
    inputs = packed(bounds, device, 64, dtype=torch.bfloat16, **(dict(H=16, HV=32, K=128) if many else {}))
    out = hold(inputs)
    for start, end in zip(bounds, bounds[1:], strict=False):
        assert torch.equal(out[:, start:end], alone(inputs, start, end))
    assert torch.equal(fused(*inputs.args[:3], inputs.cu_seqlens.int(), 64), out)


@pytest.mark.parametrize("int_dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
def test_V12_both_integer_types_take_the_same_launch(int_dtype, device):
    """Offsets carry no constant: the type is the only difference, so at most one program each is compiled."""
    from mindspeed_kkt_plugin.kernels import portable

    plans = []
    for bounds in ([0, 5, 20], [0, 0, 17, 20]):
        inputs = packed(bounds, device)
        cu = inputs.cu_seqlens.to(int_dtype)
        _, (launch,) = portable.plan(*inputs.args[:3], cu, prepare_chunk_indices(cu, 16), chunk_size=16, num_cores=2,
                                     output_dtype=torch.float32, head_first=False, output_head_first=False)
        plans.append(launch.constants)
    assert plans[0] == plans[1]


@pytest.mark.parametrize("chunk_size", [16, 32, 64])
@pytest.mark.parametrize("bounds", [[0, 0, 64], [0, 64, 64, 64, 130], [0, 0, 0, 1], [0, 2, 2, 2, 4], [0, 0, 33, 33]],
                         ids=str)
def test_V03_empty_sequences_anywhere(bounds, chunk_size, device, unwritten_is_nan):
    hold(packed(bounds, device, chunk_size, T=bounds[-1] + 3))


def test_V04_repeated_last_offsets_change_nothing(device):
    inputs = packed([0, 16, 40, 40, 40], device)
    shorter = torch.tensor([0, 16, 40], device=device)
    assert torch.equal(hold(inputs), fused(*inputs.args[:3], shorter, 16))


@pytest.mark.parametrize("path", ["first", "two_call", "torch"])
@pytest.mark.parametrize("B,T,cu_seqlens", [(0, 64, None), (1, 0, None), (1, 0, [0]), (1, 0, [0, 0, 0]),
                                            (1, 5, [0]), (1, 5, [0, 0])], ids=str)
def test_V06_nothing_to_do_gives_zeros_of_the_right_shape(B, T, cu_seqlens, path, device, monkeypatch,
                                                          unwritten_is_nan):
    if path != "first":
        monkeypatch.setenv("MINDSPEED_KKT_PATH", path)
    k = torch.randn(B, T, 2, 16, dtype=torch.bfloat16, device=device)
    cu = None if cu_seqlens is None else torch.tensor(cu_seqlens, device=device)
    for head_first in (False, True):
        out = fused(k, None, torch.rand(B, T, 4, device=device), cu, output_head_first=head_first)
        assert out.shape == ((B, 4, T, 64) if head_first else (B, T, 4, 64)) and out.dtype == torch.bfloat16
        assert (out == 0).all()


@pytest.mark.parametrize("chunk_size", [16, 64])
def test_V07_three_tiny_sequences(chunk_size, device):
    hold(packed([0, 57, 59, 64], device, chunk_size))


def test_V07_chunks_of_128_are_refused_by_name(device):
    inputs = packed([0, 57, 59, 64], device)
    with pytest.raises(ValueError, match="chunk_size is 128; allowed: an int of 16, 32, 64"):
        fused(*inputs.args[:4], 128)


@pytest.mark.parametrize("chunk_size,count", [(32, 65), (64, 33)])
def test_V09_no_chunk_spans_two_sequences(chunk_size, count):
    cu = torch.tensor([0, 781, 2048])
    table = prepare_chunk_indices(cu, chunk_size)
    assert table.shape[0] == count
    rows, valid = varlen.chunk_rows(2048, chunk_size, cu)
    sequence = torch.where(rows < 781, 0, 1)
    assert ((sequence == table[:, :1]) | ~valid).all()


def test_V09_chunks_restart_inside_the_operator(device):
    inputs = packed([0, 21, 48], device, 32)
    out = hold(inputs)
    assert torch.equal(out[:, 21:], alone(inputs, 21, 48))


@pytest.mark.parametrize("lengths", [[7, 130, 65], [40, 24, 8]], ids=str)
def test_V16_each_ranks_slice_of_a_packed_batch_is_its_own_run(lengths, device):
    """Cutting is the caller's: one that truncates lengths would shift rows. What a rank is given, it computes."""
    bounds = offsets(lengths)
    inputs = packed(bounds, device)
    for rank in range(2):
        mine = [bounds[i] + (bounds[i + 1] - bounds[i]) * rank // 2 for i in range(len(lengths))]
        ends = [bounds[i] + (bounds[i + 1] - bounds[i]) * (rank + 1) // 2 for i in range(len(lengths))]
        rows = torch.cat([torch.arange(a, b, device=device) for a, b in zip(mine, ends, strict=True)])
        part = [x[:, rows] for x in inputs.args[:3]]
        cu = torch.tensor(offsets([b - a for a, b in zip(mine, ends, strict=True)]), device=device)
        local = Inputs(*part, cu, 16)
        hold(local)


@pytest.mark.parametrize("bounds,table,part", [
    ([0, 12, 8, 16], None, "decreases from 12 to 8"),
    ([0, 12, 17], None, "ends at 17"),
    ([0, 16], [[1, 0]], "each once"),
    ([0, 16], [[0, 1]], "each once"),
    ([0, 16], [[0, -1]], "each once"),
    ([0, 16], [[0, 0], [0, 0]], "each once"),
], ids=str)
def test_V10_offsets_and_tables_out_of_range_are_refused(bounds, table, part, device, monkeypatch):
    monkeypatch.setenv("MINDSPEED_KKT_CHECK", "1")
    k = torch.randn(1, 16, 1, 16, device=device)
    with pytest.raises(ValueError, match=part):
        fused(k, None, None, torch.tensor(bounds, device=device), 16,
              chunk_indices=None if table is None else torch.tensor(table, device=device))


@pytest.mark.parametrize("int_dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
def test_V13_tables_are_right_for_a_thousand_tensors_at_recycled_addresses(int_dtype):
    draw = random.Random(0)
    for _ in range(1000):
        lengths = [draw.choice([0, draw.randrange(70)]) for _ in range(8)]
        cu = torch.tensor(offsets(lengths), dtype=int_dtype)
        chunk_size = draw.choice([16, 64])
        expected = [[n, c] for n, length in enumerate(lengths) for c in range(-(-length // chunk_size))]
        assert prepare_chunk_indices(cu, chunk_size).tolist() == expected
        del cu


def test_V13_results_are_right_for_new_offsets_at_recycled_addresses(device):
    draw = random.Random(1)
    for seed in range(12 if device == "cpu" else 300):
        bounds = offsets([draw.choice([0, draw.randrange(20)]) for _ in range(6)])
        hold(packed(bounds, device, T=bounds[-1] + 1, seed=seed))


class _Counted:
    def __init__(self, monkeypatch):
        self.tables = 0
        make = torch.repeat_interleave

        def counted(*args, **kwargs):
            self.tables += 1
            return make(*args, **kwargs)

        monkeypatch.setattr(torch, "repeat_interleave", counted)  # once per table made, nowhere else on this path


def _as_on_an_accelerator(monkeypatch):
    monkeypatch.setattr("mindspeed_kkt_plugin.op.values_are_checked", lambda device: False)
    monkeypatch.setattr(checks, "values_are_checked", lambda device: False)


def test_V15_R12_one_table_per_offsets_and_chunk_size_however_it_is_passed(device, monkeypatch):
    _as_on_an_accelerator(monkeypatch)
    inputs = packed([0, 9, 30], device)
    inputs.cu_seqlens = inputs.cu_seqlens.clone()  # making the inputs has made a table
    counted = _Counted(monkeypatch)
    for _layer in range(3):
        fused(inputs.k, inputs.g, inputs.beta, inputs.cu_seqlens, 16)
        fused(inputs.k, inputs.g, inputs.beta, inputs.cu_seqlens, 64)
        fused(inputs.k, g=inputs.g, beta=inputs.beta, cu_seqlens=inputs.cu_seqlens, chunk_size=16)
    assert counted.tables == 2


def test_R12_48_layers_cost_one_reading_of_the_offsets(device, monkeypatch):
    _as_on_an_accelerator(monkeypatch)
    readings = []
    inputs = packed([0, 3, 5], device)
    inputs.cu_seqlens = inputs.cu_seqlens.clone()
    counted = _Counted(monkeypatch)
    move = torch.Tensor.to

    def to(x, *args, **kwargs):
        if args[:1] == ("cpu",):
            readings.append(x.shape)
        return move(x, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", to)
    for _ in range(48):
        fused(*inputs.args)
    assert (counted.tables, len(readings)) == (1, 1)


@pytest.mark.parametrize("T", [1215, 1216, 1217, 2433])
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
def test_V18_edges_at_multiples_of_1216_tokens(T, chunk_size, device, monkeypatch):
    """Another implementation's super-block. Ours has none: the torch path checks every row, the kernel the edge."""
    if device == "cpu":
        monkeypatch.setenv("MINDSPEED_KKT_PATH", "torch")
    hold(make_inputs("cosine_50", T=T, H=1, K=16, chunk_size=chunk_size, device=device))


@pytest.mark.parametrize("chunk_size", [16, 32, 64])
def test_V18_the_kernel_at_1216_in_a_packed_batch(chunk_size, device):
    bounds = [0, 1216, 1217, 2433] if device != "cpu" else [0, 128, 129, 257]
    hold(packed(bounds, device, chunk_size))


@pytest.mark.parametrize("path", ["first", "two_call", "torch"])
def test_strided_offsets_and_tables_mean_their_values(path, device, monkeypatch):
    """Slices of a larger tensor, and tables transposed from [2, NT]: kernels read dense memory."""
    inputs = packed([0, 9, 40], device)
    strided = torch.tensor([0, 99, 9, 99, 40, 99], device=device)[::2]
    table = prepare_chunk_indices(inputs.cu_seqlens, 16).t().contiguous().t()
    assert not strided.is_contiguous() and not table.is_contiguous()
    if path != "first":
        monkeypatch.setenv("MINDSPEED_KKT_PATH", path)
    expected = hold(inputs)
    assert torch.equal(fused(*inputs.args[:3], strided, 16), expected)
    assert torch.equal(fused(*inputs.args, chunk_indices=table), expected)


def test_strided_offsets_in_the_two_calls(device):
    from mindspeed_kkt_plugin.unfused import chunk_scaled_dot_kkt_fwd, solve_tril

    inputs = packed([0, 9, 40], device)
    strided = torch.tensor([0, 99, 9, 99, 40, 99], device=device)[::2]
    low = chunk_scaled_dot_kkt_fwd(inputs.k, inputs.g, None, inputs.beta, strided, 16)
    assert_accurate(solve_tril(low, strided), exact(inputs), inputs)


def test_offsets_and_table_may_differ_in_integer_type(device):
    inputs = packed([0, 9, 40], device)
    table = prepare_chunk_indices(inputs.cu_seqlens, 16)
    expected = hold(inputs)
    assert torch.equal(fused(*inputs.args, chunk_indices=table.int()), expected)
    assert torch.equal(fused(*inputs.args[:3], inputs.cu_seqlens.int(), 16, chunk_indices=table), expected)
