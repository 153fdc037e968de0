"""The standards accept one rounding of the exact result, refuse 0.1 % beyond it, and are never looser than that."""
from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
import torch

from mindspeed_kkt_plugin import reference
from ut.atk.package import CASE_FILES, frozen, module
from ut.atk_standin import schema
from ut.atk_standin.standards import judge
from ut.inputs import make_inputs

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# What the format itself may cost: fp32 and fp16 stay below 0.1 % with their rounding, bf16 rounds by up to 2^-8.
LARGEST = {"fp32": 1e-3, "fp16": 1e-3, "bf16": 2.0**-8 + 1e-3}
STANDARDS = module("kkt_solve_standards").PREFERRED


@pytest.fixture(scope="module")
def exact() -> torch.Tensor:
    return reference.kkt_solve(*make_inputs("cosine_50", T=128, K=64).args)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("standard", STANDARDS)
def test_rounding_the_exact_result_once_passes(standard, dtype, exact):
    rounded = exact.to(DTYPES[dtype])
    acc = module("kkt_solve_standards").accuracy_standard(standard, dtype)
    passed, figures = judge(acc, rounded, rounded, exact.float())
    assert passed, figures


def one_wrong(x: torch.Tensor, dtype: str) -> torch.Tensor:
    x = x.clone()
    x[0, 9, 0, 3] = 0.5
    return x


DAMAGE = {
    "all a little off": lambda x, dtype: x * (1 + (0.004 if dtype != "bf16" else 0.012)),
    "one entry wrong": one_wrong,
    "off by one row": lambda x, dtype: x.roll(1, dims=1),
    "NaN": lambda x, dtype: x.index_fill(1, torch.tensor(7), float("nan")),
    "infinite": lambda x, dtype: x.index_fill(1, torch.tensor(7), float("inf")),
    "shape": lambda x, dtype: x[:, 1:],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("standard", STANDARDS)
def test_wrong_result_is_refused(standard, dtype, damage, exact):
    wrong = DAMAGE[damage](exact, dtype).to(DTYPES[dtype])
    acc = module("kkt_solve_standards").accuracy_standard(standard, dtype)
    assert not judge(acc, wrong, exact.to(DTYPES[dtype]), exact.float())[0]


def test_golden_with_nan_is_refused(exact):
    """ATK would pass it without looking at the result."""
    acc = module("kkt_solve_standards").accuracy_standard("mixed_tolerance_bm", "fp32")
    golden = exact.float()
    golden[0, 3, 0, 1] = float("nan")
    passed, figures = judge(acc, exact.float(), exact.float(), golden)
    assert not passed and "golden" in figures["reason"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_threshold_is_looser_than_a_tenth_of_a_percent(dtype):
    ask = module("kkt_solve_standards").accuracy_standard
    floor = {"fp32": 2.0**-14, "fp16": 2.0**-11, "bf16": 2.0**-8}[dtype]
    double = ask("cv_fused_double_benchmark", dtype)["cv_fused_double_benchmark"]
    assert max(double.values()) * floor <= LARGEST[dtype]
    mixed = ask("mixed_tolerance_bm", dtype)["mixed_tolerance_bm"]
    assert mixed[f"{dtype}_rtol"] <= LARGEST[dtype] and mixed[f"{dtype}_atol"] <= 1e-3
    assert mixed[f"{dtype}_max_abs_error_limit"] <= 1e-3 and mixed[f"{dtype}_required_matched_ratio"] >= 0.999
    single = ask("single_bm", dtype)["single_bm"]
    newer = {"fp32": 2.0**-13, "fp16": 2.0**-10, "bf16": 2.0**-7}[dtype]
    assert single[f"{dtype}_error"] <= LARGEST[dtype] and single["mare_ratio"] * newer <= LARGEST[dtype]


@pytest.mark.parametrize("standard", STANDARDS)
def test_rewritten_case_files_keep_the_format(standard):
    for kind in CASE_FILES:
        rewritten = module("kkt_solve_standards").rewrite(frozen(kind), standard)
        schema.CASES(kind, rewritten)
        assert {next(iter(case["standard"]["acc"])) for case in rewritten} == {standard}
        assert [case["inputs"] for case in rewritten] == [case["inputs"] for case in frozen(kind)]


@pytest.mark.parametrize("known", [STANDARDS, STANDARDS[1:], STANDARDS[2:]], ids=lambda known: known[0])
def test_standard_follows_the_installed_version(known, monkeypatch, tmp_path):
    registry = ModuleType("atk.tasks.task_plugins_register")
    registry.ACCURACY_REGISTRY = dict.fromkeys(known)
    for name in ("atk", "atk.tasks"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name) or ModuleType(name))
    monkeypatch.setitem(sys.modules, registry.__name__, registry)
    out = tmp_path / "cases.json"
    monkeypatch.setattr(sys, "argv", ["x", "--cases", str(CASE_FILES["accuracy"]), "--out", str(out)])
    module("kkt_solve_standards").main()
    assert known[0] in json.loads(out.read_text())[0]["standard"]["acc"]


def test_unknown_dtype_or_standard_is_named():
    ask = module("kkt_solve_standards").accuracy_standard
    with pytest.raises(ValueError, match="output_dtype is 'int8'"):
        ask("single_bm", "int8")
    with pytest.raises(ValueError, match="standard is 'close_enough'"):
        ask("close_enough", "fp32")
