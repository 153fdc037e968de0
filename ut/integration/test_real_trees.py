"""The real MindSpeed, MindSpeed-LLM, MindSpeed-MM and Megatron-LM sources, where environment variables point to them:
MINDSPEED_SRC, MINDSPEED_LLM_SRC, MINDSPEED_MM_SRC, and MEGATRON_SRC (core_v0.12.1) for the full adaptors.

Each case runs in a process of its own (real_tree.py, real_adaptor.py). The commits are recorded as test properties.
"""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mindspeed_kkt_plugin.integration.consumers import CONSUMERS
from mindspeed_kkt_plugin.integration.pairing import why_unpaired_source
from ut.integration.conftest import ROW, STACKS

REPOSITORY = Path(__file__).parents[2]
TREES = {"mindspeed": ["MINDSPEED_SRC"], "llm": ["MINDSPEED_SRC", "MINDSPEED_LLM_SRC"],
         "mm": ["MINDSPEED_SRC", "MINDSPEED_MM_SRC"]}
ADAPTOR_NEEDS = ("psutil", "scipy", "einops", "regex", "six", "tqdm")


def _stack_of(consumer: str) -> str:
    return "llm" if consumer.startswith("L") else "mm"


def _need(*variables: str) -> None:
    missing = [name for name in variables if name not in os.environ]
    if missing:
        pytest.skip(f"{', '.join(missing)} not set: a checkout of the real sources is needed")


def _run(script: str, *arguments: str, **environment: str) -> dict:
    variables = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TRAINING_BACKEND")}
    ran = subprocess.run([sys.executable, "-W", "ignore", "-m", f"ut.integration.{script}", *arguments],
                         env=variables | environment | {"OMP_NUM_THREADS": "1"}, cwd=REPOSITORY,
                         capture_output=True, text=True, timeout=300)
    results = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, ran.stdout[-2000:] + ran.stderr[-4000:]
    return json.loads(results[0].removeprefix("RESULT ")) | {"log": ran.stdout}


@pytest.fixture
def commits(record_property):
    def record(*variables):
        _need(*variables)
        for variable in variables:
            command = ["git", "-C", os.environ[variable], "rev-parse", "HEAD"]
            head = subprocess.run(command, capture_output=True, text=True).stdout.strip()
            record_property(variable, head or "not a git checkout")

    return record


def test_the_patching_cases_run_with_the_real_manager_too():
    _need("MINDSPEED_SRC")
    assert "real-manager" in STACKS


CASES = [
    ("L1", "flag", "imported-first"), ("L1", "flag", "installed-first", "packed"),
    ("L1", "direct", "installed-first"), ("L1", "direct", "imported-first", "packed"),
    ("L2", "flag", "imported-first"), ("L2", "direct", "installed-first", "packed"),
    ("M1", "plugin", "imported-first"), ("M1", "plugin", "installed-first", "packed"),
    ("M2", "plugin", "imported-first", "packed"), ("M2", "plugin", "installed-first"),
    ("M3", "plugin", "imported-first", "packed"), ("M3", "plugin", "installed-first"),
    ("M3", "plugin", "imported-first", "packed", "arch35"),
]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_real_consumer_is_fused_bit_equal_and_undone(case, commits):
    consumer, route, order, *_ = case
    commits(*TREES[_stack_of(consumer)])
    found = _run("real_tree", *case, TRAINING_BACKEND="mindspeed_fsdp", NON_MEGATRON="true")
    assert found["state"] == "active" and found["operator_calls"] == {"torch": 1}
    assert found["bit_equal"] == {"o": True, "state": True, "A": True}
    assert (found["original_pair_calls_while_fused"], found["original_pair_calls_after_undo"]) == (0, 2)
    assert found["o_error"] < 5e-3, "the torch operators do not compute the gated delta rule"
    head_first = consumer in ("L2", "M2", "M3")
    assert (found["A_shape"][1:3] == [2, 150]) == head_first and found["A_dtype"] == "torch.bfloat16"
    assert f"active for: {consumer} {ROW[consumer].target}" in found["log"]
    if order == "imported-first":
        assert found["changed_by_install"] == [ROW[consumer].target] and found["changed_after_undo"] == []


@pytest.mark.parametrize("consumer", ["L1", "L2"])
def test_P16_real_stack_without_the_flag_changes_no_attribute(consumer, commits):
    commits(*TREES["llm"])
    found = _run("real_tree", consumer, "flag-off", "imported-first", TRAINING_BACKEND="mindspeed_fsdp")
    assert found["changed_by_install"] == [] and found["operator_calls"] == {}
    assert found["original_pair_calls_while_fused"] == 2


ADAPTORS = {  # (stack, order) → consumers that must be active
    ("mindspeed", "before"): [], ("mindspeed", "after"): [],
    ("llm", "before"): ["L1"], ("llm", "after"): ["L1"], ("llm", "off"): [],
    ("mm", "before"): ["M1", "M3"], ("mm", "yaml"): ["M1", "M3"], ("mm", "off"): [],
}


@pytest.mark.parametrize("case", ADAPTORS, ids="-".join)
def test_full_start_up_on_megatron(case, commits):
    stack, order = case
    commits(*TREES[stack], "MEGATRON_SRC")
    if absent := [name for name in ADAPTOR_NEEDS if importlib.util.find_spec(name) is None]:
        pytest.skip(f"Megatron-LM and MindSpeed need packages that are not installed: {', '.join(absent)}")
    found = _run("real_adaptor", *case)
    assert found["flag"] is (order in ("before", "after")), "Megatron's strict parser and our flag"
    assert [name for name, state in found["states"].items() if state == "active"] == ADAPTORS[case]
    assert found["targets"] >= 90, "MindSpeed's other patches"
    through_the_manager = stack == "llm" or order == "yaml"
    assert found["ours"] == [ROW[c].target for c in ADAPTORS[case] if through_the_manager]
    if ADAPTORS[case]:
        fused_runs = [0, 0] if stack == "llm" else [0]  # before and after repatch
        assert found["bit_equal"] and found["solve_calls_until_undone"] == [*fused_runs, len(ADAPTORS[case])]


def _real_source(consumer):
    variable = "MINDSPEED_LLM_SRC" if consumer.id.startswith("L") else "MINDSPEED_MM_SRC"
    _need(variable)
    file = Path(os.environ[variable]).joinpath(*consumer.module.split(".")).with_suffix(".py")
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("consumer", CONSUMERS, ids=lambda c: c.id)
def test_real_forward_is_accepted_and_a_changed_one_is_not(consumer):
    """A newer version that looked at A between the two calls, or passed it on, would be left alone."""
    source = _real_source(consumer)
    assert why_unpaired_source(source, consumer.function) is None
    kkt = source.index("chunk_scaled_dot_kkt_fwd(", source.index(f"def {consumer.function}"))
    solve = source.index("A = solve_tril", kkt)
    line = source.rindex("\n", 0, source.rindex("if is_arch35", kkt, solve) if consumer.id == "M3" else solve)
    indent = "        " if consumer.id == "L1" else "    "
    changed = source[:line] + f"\n{indent}check(A)" + source[line:]
    assert "something other than solve_tril" in why_unpaired_source(changed, consumer.function)
