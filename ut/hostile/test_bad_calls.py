"""Bad calls: exact exception type, a message that names argument, value and what is allowed, no launch, no trace left.

Together with ut/test_op_errors.py this is the operator's whole refusal table.
"""
from __future__ import annotations

import numpy
import pytest
import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin import paths, status, varlen
from mindspeed_kkt_plugin.kernels.launch import Launch

pytest.importorskip("triton", reason="the two-call chain needs Triton (pip install triton-ascend==3.2.0)")
from mindspeed_kkt_plugin.unfused import chunk_scaled_dot_kkt_fwd, solve_tril  # noqa: E402


def k(*shape, dtype=torch.float32):
    return torch.ones(shape or (1, 20, 2, 16), dtype=dtype)


def gate(*shape, dtype=torch.float32):
    return torch.zeros(shape or (1, 20, 4), dtype=dtype)


def ints(values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


DTYPES = "bfloat16, float16, float32"
SIZES = "an int of 16, 32, 64"
# id: (call, exception, parts of the message)
CALLS = {
    "k_none": (lambda: fused(None), TypeError, ["k must be a tensor", "NoneType"]),
    "k_text": (lambda: fused("k"), TypeError, ["k must be a tensor", "str"]),
    "k_numpy": (lambda: fused(numpy.ones((1, 20, 2, 16), "float32")), TypeError, ["k must be a tensor", "ndarray"]),
    "k_list_of_tensors": (lambda: fused([k(20, 2, 16)]), TypeError, ["k must be a tensor", "list"]),
    "k_missing": (lambda: fused(beta=gate()), TypeError, ["missing", "'k'"]),
    "k_bool": (lambda: fused(k().bool()), TypeError, ["k has dtype bool", DTYPES]),
    "k_complex": (lambda: fused(k(dtype=torch.complex64)), TypeError, ["k has dtype complex64", DTYPES]),
    "k_float8": (lambda: fused(k().to(torch.float8_e4m3fn)), TypeError, ["k has dtype float8_e4m3fn", DTYPES]),
    "k_int64": (lambda: fused(k().long()), TypeError, ["k has dtype int64", DTYPES]),
    "k_sparse": (lambda: fused(k().to_sparse()), TypeError, ["k has layout sparse_coo", "allowed: strided"]),
    "k_jagged": (lambda: fused(torch.nested.nested_tensor([k(4, 2, 16)] * 2, layout=torch.jagged)), TypeError,
                 ["k has layout jagged", "allowed: strided"]),
    "k_five_axes": (lambda: fused(k(1, 1, 20, 2, 16)), ValueError, ["k has shape (1, 1, 20, 2, 16)", "[B, T, H, K]"]),
    "k_scalar": (lambda: fused(torch.tensor(1.0)), ValueError, ["k has shape ()", "[B, T, H, K]"]),
    "k_head_first_axes": (lambda: fused(k(20, 2, 16), head_first=True), ValueError, ["(20, 2, 16)", "[B, H, T, K]"]),
    "k_wide": (lambda: fused(k(1, 4, 1, 512)), ValueError, ["K = 512", "1 to 256"]),
    "g_number": (lambda: fused(k(), 0.0), TypeError, ["g must be a tensor", "float"]),
    "g_sparse": (lambda: fused(k(), gate().to_sparse()), TypeError, ["g has layout sparse_coo", "strided"]),
    "g_int": (lambda: fused(k(), gate(dtype=torch.int32)), TypeError, ["g has dtype int32", DTYPES]),
    "g_per_channel": (lambda: fused(k(), gate(1, 20, 2, 16)), ValueError, ["g has shape (1, 20, 2, 16)", "[B, T, HV]"]),
    "g_head_first": (lambda: fused(k(), gate(1, 4, 20)), ValueError, ["g has shape (1, 4, 20)", "B = 1, T = 20"]),
    "g_token_first_with_head_first": (lambda: fused(k(1, 2, 20, 16), gate(), head_first=True), ValueError,
                                      ["g has shape (1, 20, 4)", "[B, HV, T]"]),
    "g_no_heads": (lambda: fused(k(), gate(1, 20, 0)), ValueError, ["HV = 0", "multiple of k's H = 2"]),
    "beta_text": (lambda: fused(k(), None, "1"), TypeError, ["beta must be a tensor", "str"]),
    "beta_float64": (lambda: fused(k(), None, gate().double()), TypeError, ["beta has dtype float64", DTYPES]),
    "beta_short": (lambda: fused(k(), None, gate(1, 19, 4)), ValueError, ["beta has shape (1, 19, 4)", "T = 20"]),
    "beta_batch": (lambda: fused(k(), None, gate(2, 20, 4)), ValueError, ["beta has shape (2, 20, 4)", "B = 1"]),
    "beta_heads": (lambda: fused(k(), None, gate(1, 20, 3)), ValueError, ["beta has HV = 3", "H = 2"]),
    "beta_other_than_g": (lambda: fused(k(), gate(1, 20, 2), gate()), ValueError,
                          ["g (1, 20, 2)", "beta (1, 20, 4)", "same shape"]),
    "beta_elsewhere": (lambda: fused(k(), None, gate().to("meta")), ValueError, ["beta is on meta", "k is on cpu"]),
    "offsets_tuple": (lambda: fused(k(), None, None, (0, 20)), TypeError, ["cu_seqlens must be a tensor", "tuple"]),
    "offsets_int16": (lambda: fused(k(), None, None, ints([0, 20], torch.int16)), TypeError,
                      ["cu_seqlens has dtype int16", "int32, int64"]),
    "offsets_bool": (lambda: fused(k(), None, None, ints([0, 1], torch.bool)), TypeError,
                     ["cu_seqlens has dtype bool", "int32, int64"]),
    "offsets_scalar": (lambda: fused(k(), None, None, ints(20)), ValueError,
                       ["cu_seqlens has shape ()", "[number of sequences + 1]"]),
    "offsets_with_batch": (lambda: fused(k(2, 20, 2, 16), None, None, ints([0, 20])), ValueError, ["B = 2", "B = 1"]),
    "offsets_start": (lambda: fused(k(), None, None, ints([3, 20])), ValueError, ["cu_seqlens starts at 3", "at 0"]),
    "offsets_fall": (lambda: fused(k(), None, None, ints([0, 9, 8])), ValueError, ["decreases from 9 to 8", "index 2"]),
    "offsets_past_end": (lambda: fused(k(), None, None, ints([0, 2**40])), ValueError,
                         ["cu_seqlens ends at 1099511627776", "T = 20"]),
    "offsets_past_empty": (lambda: fused(k(1, 0, 2, 16), None, None, ints([0, 1])), ValueError,
                           ["cu_seqlens ends at 1", "T = 0"]),
    "table_alone": (lambda: fused(k(), chunk_indices=ints([[0, 0]])), ValueError,
                    ["chunk_indices needs cu_seqlens"]),
    "table_float": (lambda: fused(k(), cu_seqlens=ints([0, 20]), chunk_indices=gate(1, 2)), TypeError,
                    ["chunk_indices has dtype float32", "int32, int64"]),
    "table_flat": (lambda: fused(k(), cu_seqlens=ints([0, 20]), chunk_indices=ints([0, 0])), ValueError,
                   ["chunk_indices has shape (2,)", "[NT, 2]"]),
    "table_short": (lambda: fused(k(), cu_seqlens=ints([0, 20]), chunk_size=16, chunk_indices=ints([[0, 0]])),
                    ValueError, ["chunk_indices (1 rows)", "2 chunks", "chunk_size = 16"]),
    "table_of_ghosts": (lambda: fused(k(), cu_seqlens=ints([0, 20]), chunk_indices=ints([[7, 0]])), ValueError,
                        ["chunk_indices (1 rows)", "each once"]),
    "size_none": (lambda: fused(k(), chunk_size=None), ValueError, ["chunk_size is None", SIZES]),
    "size_text": (lambda: fused(k(), chunk_size="64"), ValueError, ["chunk_size is '64'", SIZES]),
    "size_negative": (lambda: fused(k(), chunk_size=-64), ValueError, ["chunk_size is -64", SIZES]),
    "size_tensor": (lambda: fused(k(), chunk_size=ints(64)), ValueError, ["chunk_size is tensor(64)", SIZES]),
    "size_numpy": (lambda: fused(k(), chunk_size=numpy.int64(64)), ValueError, ["chunk_size is", "64", SIZES]),
    "size_24": (lambda: fused(k(), chunk_size=24), ValueError, ["chunk_size is 24", SIZES]),
    "out_text": (lambda: fused(k(), output_dtype="float32"), TypeError, ["output_dtype is 'float32'", DTYPES]),
    "out_list": (lambda: fused(k(), output_dtype=[1]), TypeError, ["output_dtype is [1]", DTYPES]),
    "out_int": (lambda: fused(k(), output_dtype=torch.int32), TypeError, ["output_dtype is torch.int32", DTYPES]),
    "flag_none": (lambda: fused(k(), head_first=None), TypeError, ["head_first must be True or False", "None"]),
    "flag_tensor": (lambda: fused(k(), output_head_first=torch.tensor(True)), TypeError,
                    ["output_head_first must be True or False", "tensor(True)"]),
    "unknown_argument": (lambda: fused(k(), scale=1.0), TypeError, ["unexpected", "scale"]),
    "too_many_positional": (lambda: fused(k(), None, None, None, 64, None, None, True), TypeError, ["positional"]),
    "kkt_gk": (lambda: chunk_scaled_dot_kkt_fwd(k(), None, gate()), ValueError, ["gk", "pass None"]),
    "kkt_size": (lambda: chunk_scaled_dot_kkt_fwd(k(), chunk_size=128), ValueError, ["chunk_size is 128", SIZES]),
    "solve_none": (lambda: solve_tril(None), TypeError, ["A must be a tensor", "NoneType"]),
    "solve_sparse": (lambda: solve_tril(k(1, 4, 1, 16).to_sparse()), TypeError, ["A has layout sparse_coo"]),
    "solve_square": (lambda: solve_tril(k(16, 16)), ValueError, ["A has shape (16, 16)", "BT among 16, 32, 64"]),
    "solve_float64": (lambda: solve_tril(k(1, 4, 1, 16).double()), TypeError, ["A has dtype float64", DTYPES]),
    "solve_offsets": (lambda: solve_tril(k(1, 4, 1, 16), ints([0, 5])), ValueError, ["cu_seqlens ends at 5", "T = 4"]),
}


@pytest.mark.parametrize("case", CALLS)
def test_bad_call(case, monkeypatch):
    launched = []
    monkeypatch.setattr(Launch, "run", lambda self: launched.append(self.name))
    before = status(), len(paths._broken), torch.get_rng_state()
    call, kind, parts = CALLS[case]
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert not launched
    assert (status(), len(paths._broken)) == before[:2] and torch.equal(torch.get_rng_state(), before[2])


def test_the_table_is_long_enough():
    assert len(CALLS) >= 40


def test_a_refused_call_does_not_hinder_the_next():
    good = fused(k(), None, None, ints([0, 20]), 16)
    for call, kind, _ in CALLS.values():
        with pytest.raises(kind):
            call()
    assert torch.equal(fused(k(), None, None, ints([0, 20]), 16), good)
    assert len(varlen._made) <= varlen._REMEMBERED


@pytest.mark.parametrize("value", ["quick", "PORTABLE", " "])
def test_an_unknown_path_is_named_with_the_known_ones(value, monkeypatch):
    monkeypatch.setenv("MINDSPEED_KKT_PATH", value)
    with pytest.raises(ValueError, match=f"PATH is '{value}'; allowed: ascend, portable, two_call, torch"):
        fused(k())
