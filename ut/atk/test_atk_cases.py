"""The frozen cases come from the generator, cover what they promise, and turn into arguments the operator accepts."""
from __future__ import annotations

from collections import Counter

import pytest
import torch

from mindspeed_kkt_plugin import checks
from mindspeed_kkt_plugin.varlen import chunk_rows
from ut.atk.package import CASE_FILES, DESIGNS, GENERATOR, frozen, module, needs_standin, plugin, short
from ut.atk_standin import dataset, generate
from ut.atk_standin.accuracy import tasks
from ut.atk_standin.configs import CaseConfig

pytestmark = needs_standin
SMALL_TASKS = 64


def values(case: dict) -> dict:
    return {entry["name"]: entry for entry in case["inputs"]}


def operands(case: dict):
    config = CaseConfig.from_payload(case)
    dtypes = {entry.name: entry.dtype for entry in config.inputs}
    return module("kkt_solve_inputs").prepare(dataset.fill(config).kwargs, dtypes, config.default_seed)


@pytest.mark.parametrize("kind", CASE_FILES)
def test_generator_gives_the_frozen_cases_whatever_the_seed_of_atk(kind):
    plugin(GENERATOR)
    design = generate.read_design(DESIGNS[kind])
    for seed in (generate.ATK_DEFAULT_SEED, 5):
        assert [case.payload() for case in generate.generate(design, seed=seed)] == frozen(kind)


def test_further_cases_are_random_legal_and_repeatable():
    generator = plugin(GENERATOR)
    profiles = [generator.random_profile(index) for index in range(300)]
    assert profiles == [generator.random_profile(index) for index in range(300)]
    assert len({(p.T, p.H, p.HV, p.K, p.dtype) for p in profiles}) > 200
    for p in profiles:
        assert p.HV % p.H == 0 and p.T >= 1 and p.decay[0] <= p.decay[1] <= 0
        if p.cu_seqlens is not None:
            assert p.cu_seqlens[0] == 0 and p.cu_seqlens[-1] <= p.T and list(p.cu_seqlens) == sorted(p.cu_seqlens)


def test_accuracy_cases_cover_what_the_readme_promises():
    cases = frozen("accuracy")
    inputs = [values(case) for case in cases]
    assert len(cases) >= 60
    assert sum(tasks(CaseConfig.from_payload(case)) <= SMALL_TASKS for case in cases) >= 60
    assert {v["k"]["dtype"] for v in inputs} == {"bf16", "fp16", "fp32"}
    assert {v["chunk_size"]["range_values"] for v in inputs} == {16, 32, 64}
    assert {1, 60, 64, 100, 128, 256} <= {v["k"]["shape"][3] for v in inputs}
    for flag in ("use_g", "use_beta", "head_first", "output_head_first"):
        assert {v[flag]["range_values"] for v in inputs} == {True, False}
    assert {0.0, 0.5, 0.95, 1.0} == {v["key_correlation"]["range_values"] for v in inputs}
    assert sum(v["cu_seqlens"]["range_values"] != "none" for v in inputs) >= 9
    lengths = [v["k"]["shape"][2 if v["head_first"]["range_values"] else 1] for v in inputs]
    tails = [n % v["chunk_size"]["range_values"] for n, v in zip(lengths, inputs, strict=True)]
    assert sum(tail != 0 for tail in tails) >= 15
    assert any(v["g"]["range_values"] == [-20.0, -20.0] for v in inputs)
    assert any(v["beta"]["range_values"] == [2.0, 2.0] for v in inputs)


def test_performance_cases_hold_the_standard_shapes():
    shapes = Counter()
    for case in frozen("performance"):
        v = values(case)
        B, T, H, K = v["k"]["shape"]
        if v["k"]["dtype"] == "bf16" and H == v["g"]["shape"][2] and case["name"].endswith(f"_k{K}"):
            shapes[B, T, H, K] += 1
    standard = module("kkt_solve_profiles").STANDARD_SHAPES
    assert len(frozen("performance")) >= 60 and len(standard) == 13
    assert all(shapes[shape] == 1 for shape in standard)


def test_standard_shapes_are_those_of_npusim():
    from npusim.plans import STANDARD_SHAPES

    ours = {(B, T, HV, HV, K) for B, T, HV, K in module("kkt_solve_profiles").STANDARD_SHAPES}
    assert ours == {(s.B, s.T, s.H, s.HV, s.K) for s in STANDARD_SHAPES}


def test_every_interpreted_accuracy_case_builds_legal_arguments():
    for case in frozen("accuracy"):
        if tasks(CaseConfig.from_payload(case)) > SMALL_TASKS:
            continue
        x = operands(case)
        layout = (x.head_first, x.output_head_first)
        checks.check_arguments(
            x.k, x.g, x.beta, x.cu_seqlens, x.chunk_size, x.output_dtype, x.chunk_indices, *layout
        )
        if x.cu_seqlens is not None:
            checks.check_values(x.cu_seqlens, x.chunk_indices, x.k.shape[2 if x.head_first else 1], x.chunk_size)
        assert all(torch.isfinite(t).all() for t in (x.k, x.g, x.beta) if t is not None), case["name"]


@pytest.mark.parametrize("kind", CASE_FILES)
def test_every_case_has_legal_shapes_and_offsets(kind):
    """Meta tensors stand in for the data, so that the large cases are checked too."""
    dtypes = module("kkt_solve_inputs").DTYPES
    for case in frozen(kind):
        v = values(case)
        meta = {n: torch.empty(v[n]["shape"], dtype=dtypes[v[n]["dtype"]], device="meta") for n in ("k", "g", "beta")}
        k, g, beta = (meta[n] if n == "k" or v[f"use_{n}"]["range_values"] else None for n in meta)
        first = v["head_first"]["range_values"]
        checks.check_arguments(
            k, g, beta, None, v["chunk_size"]["range_values"], None, None, first, v["output_head_first"]["range_values"]
        )
        T = k.shape[2 if first else 1]
        offsets = module("kkt_solve_inputs")._offsets(v["cu_seqlens"]["range_values"], k.shape[0], T)
        if offsets is not None:
            checks.check_values(offsets, None, T, v["chunk_size"]["range_values"])


def find(name: str) -> dict:
    return next(case for case in frozen("accuracy") if short(case) == name)


COSINES = {"fp32_cosine_95": 0.95, "fp32_cosine_50_no_decay": 0.5, "fp32_plain": 0}


@pytest.mark.parametrize("name, cosine", COSINES.items(), ids=COSINES)
def test_keys_are_normalised_and_as_correlated_as_asked(name, cosine):
    k = operands(find(name)).k[0, :, 0]
    assert torch.allclose(k.norm(dim=-1), torch.ones(k.shape[0]), atol=1e-5)
    gram = (k @ k.T)[1:, 1:]  # the first key is the common direction
    off = gram[~torch.eye(len(gram), dtype=torch.bool)]
    assert abs(off.mean().item() - cosine) < 0.03


def test_repeated_key_repeats():
    k = operands(find("fp32_repeated_key_beta_2")).k[0, :, 0]
    assert torch.allclose(k, k[:1].expand_as(k), atol=1e-6)


@pytest.mark.parametrize("name", ["bf16_plain", "bf16_packed", "fp16_chunks_restart", "bf16_tail_k256"])
def test_gate_falls_inside_a_chunk_and_restarts_at_the_next(name):
    x = operands(find(name))
    rows, valid = chunk_rows(x.k.shape[1], x.chunk_size, x.cu_seqlens)
    steps = x.g[0][rows].diff(dim=1)
    assert (steps[valid[:, 1:]] <= 0).all()
    low = values(find(name))["g"]["range_values"][0]
    assert (x.g[0][rows[:, 0]] >= low).all(), "the first token of a chunk carries one step only"


def test_a_share_of_the_gates_is_open():
    g = operands(find("fp32_half_open_gates")).g
    open_share = (g.diff(dim=1) == 0).double().mean().item()
    assert 0.3 < open_share < 0.7


def test_promoted_data_gives_the_same_operands():
    """ATK's high-precision run hands 16-bit inputs over as fp32; the golden must see the quantised values."""
    config = CaseConfig.from_payload(find("bf16_plain"))
    dtypes = {entry.name: entry.dtype for entry in config.inputs}
    prepare = module("kkt_solve_inputs").prepare
    plain, promoted = (prepare(dataset.fill(config, p).kwargs, dtypes, config.default_seed) for p in (False, True))
    assert torch.equal(plain.k, promoted.k) and torch.equal(plain.g, promoted.g)


def test_attributes_may_arrive_as_tensors_bytes_or_strings():
    config = CaseConfig.from_payload(find("bf16_packed"))
    dtypes = {entry.name: entry.dtype for entry in config.inputs}
    data = dataset.fill(config).kwargs
    other = {**data, "chunk_size": torch.tensor(64), "use_g": torch.tensor(True), "use_beta": "True", "head_first": "0"}
    other["cu_seqlens"] = data["cu_seqlens"].encode()
    prepare = module("kkt_solve_inputs").prepare
    one, two = prepare(data, dtypes, 1), prepare(other, dtypes, 1)
    assert torch.equal(one.k, two.k) and torch.equal(one.cu_seqlens, two.cu_seqlens)
    assert (one.chunk_size, one.head_first) == (two.chunk_size, two.head_first)


BAD = {
    "decreasing offsets": ({"cu_seqlens": "0,12,8,64"}, "never decrease"),
    "offsets beyond T": ({"cu_seqlens": "0,999"}, "before T=64"),
    "correlation above one": ({"key_correlation": 1.5}, "key_correlation is 1.5"),
    "growing gate": ({"g": torch.ones(1, 64, 2)}, "positive decay"),
}


@pytest.mark.parametrize("name", BAD)
def test_illegal_case_is_refused_by_name(name):
    change, message = BAD[name]
    config = CaseConfig.from_payload(find("bf16_packed"))
    dtypes = {entry.name: entry.dtype for entry in config.inputs}
    with pytest.raises(ValueError, match=message):
        module("kkt_solve_inputs").prepare({**dataset.fill(config).kwargs, **change}, dtypes, 1)
