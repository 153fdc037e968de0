"""Bad arguments are refused before any launch; messages name the argument, its value and what is allowed."""
from __future__ import annotations

import pytest
import torch

from mindspeed_kkt_plugin import checks, status
from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin.varlen import prepare_chunk_indices


def tensors(device, B=1, T=20, H=2, HV=4, K=16):
    return {"k": torch.randn(B, T, H, K, device=device), "g": -torch.rand(B, T, HV, device=device),
            "beta": torch.rand(B, T, HV, device=device)}


def offsets(values, dtype=torch.int64):
    return lambda device: torch.tensor(values, dtype=dtype, device=device)


# id: (arguments to replace, exception, parts the message must have)
ATTRIBUTES = {
    "k_not_a_tensor": ({"k": [1.0]}, TypeError, ["k", "list"]),
    "k_float64": ({"k": lambda d: torch.randn(1, 20, 2, 16, device=d, dtype=torch.float64)}, TypeError,
                  ["k", "float64", "bfloat16"]),
    "k_int": ({"k": lambda d: torch.ones(1, 20, 2, 16, device=d, dtype=torch.int32)}, TypeError, ["k", "int32"]),
    "k_three_axes": ({"k": lambda d: torch.randn(20, 2, 16, device=d)}, ValueError,
                     ["k", "(20, 2, 16)", "[B, T, H, K]"]),
    "k_too_wide": ({"k": lambda d: torch.randn(1, 20, 2, 257, device=d)}, ValueError, ["K = 257", "256"]),
    "k_no_channels": ({"k": lambda d: torch.randn(1, 20, 2, 0, device=d)}, ValueError, ["K = 0"]),
    "k_no_heads": ({"k": lambda d: torch.randn(1, 20, 0, 16, device=d)}, ValueError, ["head"]),
    "g_float64": ({"g": lambda d: torch.zeros(1, 20, 4, device=d, dtype=torch.float64)}, TypeError, ["g", "float64"]),
    "g_two_axes": ({"g": lambda d: torch.zeros(20, 4, device=d)}, ValueError, ["g", "(20, 4)", "[B, T, HV]"]),
    "g_other_length": ({"g": lambda d: torch.zeros(1, 19, 4, device=d)}, ValueError, ["g", "(1, 19, 4)", "T = 20"]),
    "g_other_batch": ({"g": lambda d: torch.zeros(2, 20, 4, device=d)}, ValueError, ["g", "B = 1"]),
    "heads_not_a_multiple": ({"g": None, "beta": lambda d: torch.rand(1, 20, 3, device=d)}, ValueError,
                             ["HV = 3", "H = 2"]),
    "fewer_value_heads": ({"g": None, "beta": lambda d: torch.rand(1, 20, 1, device=d)}, ValueError, ["HV = 1"]),
    "g_and_beta_differ": ({"beta": lambda d: torch.rand(1, 20, 2, device=d)}, ValueError, ["g", "beta", "same shape"]),
    "beta_not_a_tensor": ({"beta": 0.5}, TypeError, ["beta", "float"]),
    "head_first_but_token_first_data": ({"head_first": True}, ValueError, ["g"]),
    "head_first_number": ({"head_first": 1}, TypeError, ["head_first", "1"]),
    "chunk_size_8": ({"chunk_size": 8}, ValueError, ["chunk_size", "8", "16, 32, 64"]),
    "chunk_size_48": ({"chunk_size": 48}, ValueError, ["48"]),
    "chunk_size_128": ({"chunk_size": 128}, ValueError, ["128"]),
    "chunk_size_true": ({"chunk_size": True}, ValueError, ["chunk_size", "True"]),
    "chunk_size_float": ({"chunk_size": 64.0}, ValueError, ["chunk_size", "64.0"]),
    "output_float64": ({"output_dtype": torch.float64}, TypeError, ["output_dtype", "float64"]),
    "packed_batch": ({"k": lambda d: torch.randn(2, 20, 2, 16, device=d), "g": None, "beta": None,
                      "cu_seqlens": offsets([0, 20])}, ValueError, ["B = 2", "B = 1"]),
    "cu_seqlens_list": ({"cu_seqlens": [0, 20]}, TypeError, ["cu_seqlens", "list"]),
    "cu_seqlens_float": ({"cu_seqlens": offsets([0, 20], torch.float32)}, TypeError, ["cu_seqlens", "float32"]),
    "cu_seqlens_two_axes": ({"cu_seqlens": offsets([[0, 20]])}, ValueError, ["cu_seqlens", "(1, 2)"]),
    "cu_seqlens_empty": ({"cu_seqlens": offsets([])}, ValueError, ["cu_seqlens", "(0,)"]),
    "indices_without_offsets": ({"chunk_indices": offsets([[0, 0]])}, ValueError, ["chunk_indices", "cu_seqlens"]),
    "indices_one_axis": ({"cu_seqlens": offsets([0, 20]), "chunk_indices": offsets([0, 0])}, ValueError,
                         ["chunk_indices", "[NT, 2]"]),
}
VALUES = {
    "start": (offsets([1, 20]), None, ["cu_seqlens", "starts at 1", "0"]),
    "decrease": (offsets([0, 12, 8, 16]), None, ["cu_seqlens", "decreases from 12 to 8", "index 2"]),
    "negative": (offsets([0, -4]), None, ["decreases"]),
    "beyond_T": (offsets([0, 21]), None, ["cu_seqlens", "21", "T = 20"]),
    "beyond_T_int32": (offsets([0, 8, 40], torch.int32), None, ["40"]),
    "indices_of_no_sequence": (offsets([0, 20]), offsets([[0, 0], [1, 0]]), ["chunk_indices"]),
    "indices_incomplete": (offsets([0, 20]), offsets([[0, 0]]), ["chunk_indices", "1 rows", "2 chunks"]),
    "indices_twice": (offsets([0, 20]), offsets([[0, 0], [0, 0]]), ["chunk_indices", "each once"]),
}


def place(value, device):
    return value(device) if callable(value) else value


@pytest.fixture
def nothing_ran():
    before = status()["calls"]
    yield
    assert status()["calls"] == before


@pytest.mark.parametrize("case", ATTRIBUTES)
def test_bad_attributes(case, device, nothing_ran):
    changes, kind, parts = ATTRIBUTES[case]
    arguments = {**tensors(device), "chunk_size": 16, **{name: place(x, device) for name, x in changes.items()}}
    with pytest.raises(kind) as caught:
        fused(**arguments)
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.parametrize("case", VALUES)
def test_bad_offsets(case, device, nothing_ran, monkeypatch):
    monkeypatch.setenv("MINDSPEED_KKT_CHECK", "1")
    cu_seqlens, chunk_indices, parts = VALUES[case]
    with pytest.raises(ValueError) as caught:
        fused(**tensors(device), chunk_size=16, cu_seqlens=place(cu_seqlens, device),
              chunk_indices=place(chunk_indices, device))
    assert all(part in str(caught.value) for part in parts), caught.value


def test_chunk_indices_of_another_chunk_size_are_noticed(device, monkeypatch):
    monkeypatch.setenv("MINDSPEED_KKT_CHECK", "1")
    cu_seqlens = torch.tensor([0, 20], device=device)
    with pytest.raises(ValueError, match="chunk_size = 16"):
        fused(**tensors(device), chunk_size=16, cu_seqlens=cu_seqlens,
              chunk_indices=prepare_chunk_indices(cu_seqlens, 32))


def test_values_are_read_on_the_cpu_always_and_on_accelerators_only_when_asked(monkeypatch):
    monkeypatch.delenv("MINDSPEED_KKT_CHECK", raising=False)
    assert checks.values_are_checked(torch.device("cpu"))
    assert not checks.values_are_checked(torch.device("cuda"))
    monkeypatch.setenv("MINDSPEED_KKT_CHECK", "0")
    assert not checks.values_are_checked(torch.device("cuda"))
    monkeypatch.setenv("MINDSPEED_KKT_CHECK", "1")
    assert checks.values_are_checked(torch.device("cuda"))


@pytest.mark.parametrize("name", ["g", "beta", "cu_seqlens", "chunk_indices"])
def test_mixed_devices_are_refused(name, device, nothing_ran):
    arguments = {**tensors(device), "cu_seqlens": torch.tensor([0, 20], device=device),
                 "chunk_indices": torch.tensor([[0, 0], [0, 1]], device=device)}
    arguments[name] = arguments[name].to("meta")
    with pytest.raises(ValueError, match=f"{name} is on meta but k is on {device}"):
        fused(**arguments, chunk_size=16)


def test_layout_flags_are_keyword_only(device):
    given = tensors(device)
    with pytest.raises(TypeError):
        fused(given["k"], given["g"], given["beta"], None, 16, None, None, True)
