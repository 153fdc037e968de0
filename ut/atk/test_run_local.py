"""`run_local.py` runs frozen cases through the package's own executor, judges them, and fails when one is wrong."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mindspeed_kkt_plugin import reference
from ut.atk.package import CASE_FILES, EXECUTOR, PACKAGE, frozen, module, needs_standin, plugin, short
from ut.atk_standin import accuracy, generate, nodes, performance, report, timing

pytestmark = needs_standin

# One of each kind, the cheapest that shows it; the whole file runs in `run_local.py accuracy`.
SAMPLE = (
    "bf16_gva_k64",
    "fp16_packed",
    "fp32_cosine_50_no_decay",
    "fp32_repeated_key_beta_2",
    "bf16_steep_decay_tail",
    "fp16_chunk_16",
    "fp32_both_head_first",
    "bf16_one_token",
)


def pick(*wanted: str, kind: str = "accuracy") -> list[dict]:
    return [case for case in frozen(kind) if short(case) in wanted]


def configs(*wanted: str, kind: str = "accuracy") -> list:
    return [case for case in generate.read_cases(CASE_FILES[kind]) if short(case.payload()) in wanted]


@pytest.mark.parametrize("name", SAMPLE)
def test_frozen_case_passes(name, device):
    plugin(EXECUTOR)
    (case,) = configs(name)
    row = accuracy.run_case(case, device)
    assert row[report.RESULT] == report.SUCCESS, row[report.REASON]
    assert row[report.REASON] == "" and row["执行路径"] in ("ascend", "portable")


def test_chain_and_reference_roles_agree_with_the_operator(device):
    plugin(EXECUTOR)
    (case,) = configs("fp32_both_head_first")
    backend = nodes.BACKENDS[device]
    fused, chain = (nodes.output(case, backend, node) for node in (nodes.DUT, nodes.GOLD))
    same, golden = nodes.output(case, "cpu", "0"), nodes.output(case, "cpu", "0", golden=True)
    for other in (chain, same, golden):
        assert other.shape == fused.shape and (other - fused).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["fp32_no_gate", "fp32_no_beta", "fp32_gva_k64", "fp32_both_head_first"])
def test_baseline_can_be_the_chain_of_an_installed_mindspeed(name, monkeypatch):
    """With stand-ins of MindSpeed's two functions that, like its own, need g, beta and equal head counts."""

    def kkt(k, g, gk=None, beta=None, cu_seqlens=None, chunk_size=64, output_dtype=None):
        assert gk is None and g.shape == beta.shape == k.shape[:3]
        return reference.kkt(k, g, beta, cu_seqlens, chunk_size, dtype=output_dtype)

    def solve(A, cu_seqlens=None, output_dtype=None):
        return reference.solve(A, cu_seqlens, dtype=output_dtype)

    for path, functions in {
        "mindspeed": {}, "mindspeed.ops": {}, "mindspeed.ops.triton": {},
        "mindspeed.ops.triton.chunk_scaled_dot_kkt": {"chunk_scaled_dot_kkt_fwd": kkt},
        "mindspeed.ops.triton.solve_tril": {"solve_tril": solve},
    }.items():  # fmt: skip
        module = ModuleType(path)
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, path, module)
    monkeypatch.setenv("KKT_SOLVE_BASELINE", "mindspeed")
    plugin(EXECUTOR)
    (case,) = configs(name)
    gap = nodes.output(case, "cpu", nodes.GOLD) - nodes.output(case, "cpu", "0", golden=True)
    assert gap.abs().max() < 1e-5


def test_unknown_baseline_is_named(monkeypatch):
    monkeypatch.setenv("KKT_SOLVE_BASELINE", "fla")
    with pytest.raises(ValueError, match="KKT_SOLVE_BASELINE is 'fla'; allowed: plugin, mindspeed"):
        plugin(EXECUTOR).baseline()


def test_case_too_large_for_the_interpreter_is_reported_not_passed():
    (case,) = configs("bf16_large_model_heads")
    row = accuracy.run_case(case, "cpu")
    assert row[report.RESULT] == report.NOT_RUN and "needs --device cuda or npu" in row[report.REASON]
    summary = accuracy.summarise([row], "cpu", "x")
    assert summary["未执行用例个数"] == 1 and summary["通过用例个数"] == 0
    assert summary["精度是否达标"] == "Failed", "a run that ran nothing has not passed"


ROLES = {
    ("npu", "dut", False): "fused", ("npu", "gold", False): "chain", ("gpu", "dut", False): "fused",
    ("cpu", "0", True): "golden", ("cpu", "cpu", False): "same_precision", ("cpu", "dut", False): "fused",
    ("cpu", "gold", True): "golden",
}  # fmt: skip


@pytest.mark.parametrize("node, role", ROLES.items(), ids=["-".join(map(str, node)) for node in ROLES])
def test_node_gets_its_role(node, role):
    assert plugin(EXECUTOR).role_of(*node) == role


@pytest.mark.parametrize("node, message", [(("npu", "dut", True), "-bd cpu"), (("pyaclnn", "0", False), "pyaclnn")])
def test_node_without_a_role_is_refused(node, message):
    with pytest.raises(RuntimeError, match=message):
        plugin(EXECUTOR).role_of(*node)


# Each executor spoils the operator's result in one way and leaves the other roles alone.
SPOILED = {
    "lower half off by 0.2 %": "out = torch.where(out == 1, out, out * 1.002)",
    "diagonal not one": "out = out + 1e-6",
    "NaN": "out = out.clone(); out[0, 3] = float('nan')",
    "raises": "raise RuntimeError('device lost')",
    "wrong shape": "out = out[:, 1:]",
}
SPOILER = """
import sys
import torch
sys.path.insert(0, {package!r})
import {executor} as good
from atk.tasks.api_execute import register
from atk.tasks.api_execute.base_api import BaseApi
AclnnBaseApi = BaseApi

@register("executor_kkt_solve")
class Spoiled(good.KktSolveApi):
    def _run(self):
        out = super()._run()
        if self.role == "fused":
            {damage}
        return out
"""


def run_local(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, str(PACKAGE / "run_local.py"), *arguments, "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)


def check(folder: Path, cases: Path) -> int:
    (path,) = folder.glob("*accuracy_cpu_reports_*.xlsx")
    return module("check_report").main([str(path), "--cases", str(cases), "--task", "accuracy"])


@pytest.fixture
def three_cases(tmp_path) -> Path:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(pick("fp32_two_tokens_chunk_32", "fp32_no_gate", "fp32_chunk_16")))
    return path


def test_clean_run_exits_zero_and_its_report_passes(three_cases, tmp_path):
    done = run_local("accuracy", "--cases", str(three_cases), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "通过用例个数: 3" in done.stdout
    assert check(tmp_path, three_cases) == 0


def spoiled(damage: str, folder: Path) -> Path:
    path = folder / "executor_broken.py"
    path.write_text(SPOILER.format(package=str(PACKAGE), executor=EXECUTOR.stem, damage=SPOILED[damage]))
    return path


def test_broken_executor_fails_the_run_and_its_report(three_cases, tmp_path):
    executor = spoiled("lower half off by 0.2 %", tmp_path)
    done = run_local("accuracy", "--cases", str(three_cases), "--executor", str(executor), folder=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "通过用例个数: 0" in done.stdout
    assert check(tmp_path, three_cases) == 1


@pytest.mark.parametrize("damage", SPOILED)
def test_every_damage_is_found_in_every_case(damage, three_cases, tmp_path, device):
    plugin(spoiled(damage, tmp_path))
    rows = [accuracy.run_case(case, device) for case in generate.read_cases(three_cases)]
    plugin(EXECUTOR)  # the healthy one again, for the tests that follow
    assert all(row[report.REASON] for row in rows)
    assert accuracy.summarise(rows, device, "x")["通过用例个数"] == 0
    report.write(rows, [{}], tmp_path, "accuracy_cpu")
    assert check(tmp_path, three_cases) == 1


def test_result_that_came_from_a_fallback_is_refused(monkeypatch):
    executor = plugin(EXECUTOR)
    import mindspeed_kkt_plugin

    last = {"last": {"path": "torch", "why": "portable: no triton"}}
    monkeypatch.setattr(mindspeed_kkt_plugin, "status", lambda: last)
    monkeypatch.setattr(executor, "run_fused", lambda x: executor.run_reference(x, executor.torch.float32))
    (case,) = configs("fp32_two_tokens_chunk_32")
    row = accuracy.run_case(case, "cpu")
    assert row[report.RESULT] == report.FAILED and "fell back to 'torch'" in row[report.REASON]


def test_unknown_selection_does_not_start(tmp_path):
    done = run_local("accuracy", "--select", "no_such_case", folder=tmp_path)
    assert done.returncode == 2 and "no_such_case" in done.stderr


def test_ratio_is_baseline_over_operator_and_slow_cases_fail(monkeypatch):
    (case,) = configs("bf16_b1_t8192_h8_hv8_k128", kind="performance")
    for fused, chain, verdict in ((50.0, 100.0, "Pass"), (100.0, 50.0, "Failed")):
        monkeypatch.setattr(timing, "npusim_us", lambda op, *_, f=fused, c=chain: f if op == "fused" else c)
        row = performance.measure(case, "cpu")
        assert row["cpu_dut/cpu_gold_Device性能比"] == chain / fused
        summary = performance.summarise([row], [case], "cpu", "x")
        assert summary["device性能是否达标"] == verdict and "estimated" in summary["数据来源"]


def test_shape_without_an_estimate_says_so():
    (case,) = configs("bf16_b1_t8192_h8_hv8_k128_chunk32", kind="performance")
    row = performance.measure(case, "cpu")
    assert row[report.RESULT] == report.NOT_RUN and "chunk_size" in row[report.REASON]


def test_estimate_that_npusim_refuses_fails_the_case(monkeypatch):
    refused = subprocess.CompletedProcess([], 1, "", "npusim: unknown target 'Ascend1'\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    (case,) = configs("bf16_b1_t8192_h8_hv8_k128", kind="performance")
    row = performance.measure(case, "cpu")
    assert row[report.RESULT] == report.FAILED and "unknown target" in row[report.REASON]


def test_profiler_table_is_summed_over_all_kernels(tmp_path):
    table = tmp_path / "ASCEND_PROFILER_OUTPUT" / "op_statistic_1.csv"
    table.parent.mkdir()
    table.write_text("OP Type,Count,Total Time(us)\nkkt,20,100.5\nsolve,20,200\n")
    assert timing.op_statistic_us(tmp_path) == 300.5
    table.write_text("OP Type,Count,Total Time(us)\n")
    with pytest.raises(RuntimeError, match="no device time"):
        timing.op_statistic_us(tmp_path)
    table.unlink()
    with pytest.raises(RuntimeError, match="found 0"):
        timing.op_statistic_us(tmp_path)


def test_device_time_ignores_rounds_in_which_the_device_waited_for_the_host(monkeypatch):
    """A round that starved gives None; the sleep ahead of the calls is doubled until the host is fast enough."""
    tried = []

    def queued(calls, number, cycles):
        tried.append((number, cycles))
        return None if cycles < 80_000_000 else 100.0

    monkeypatch.setattr(timing, "_queued_us", queued)
    assert timing.cuda_device_us([lambda: None]) == 100.0
    assert [cycles for _, cycles in tried[:3]] == [20_000_000, 40_000_000, 80_000_000]
    assert tried[-1][0] == 200, "20 ms of work a round"
    monkeypatch.setattr(timing, "_queued_us", lambda *_: None)
    with pytest.raises(RuntimeError, match="ran dry in every attempt"):
        timing.cuda_device_us([lambda: None])


def test_calls_of_many_kernels_are_queued_in_smaller_numbers(monkeypatch):
    """A chain of eight kernels a call fills the launch queue with 200 calls, however long the device sleeps."""
    tried = []

    def queued(calls, number, cycles):
        tried.append(number)
        return None if 8 * number > 1000 else 40.0

    monkeypatch.setattr(timing, "_queued_us", queued)
    assert timing.cuda_device_us([lambda: None]) == 40.0
    assert tried == [10, 200, *[100] * timing.ROUNDS]


def test_inputs_are_rotated_past_the_cache():
    plugin(EXECUTOR)
    (case,) = configs("bf16_plain")
    api, data = nodes.executor(case, "cpu", "0")
    size = sum(t.numel() * t.element_size() for t in (api.operands.k, api.operands.g, api.operands.beta))
    calls = performance._rotated(api, data, l2_bytes=10 * size)
    keys = {call.__defaults__[0].operands.k.data_ptr() for call in calls}
    assert len(calls) == len(keys) == 22


def test_operator_and_chain_are_compared_before_timing(monkeypatch, device):
    executor = plugin(EXECUTOR)
    (case,) = configs("bf16_gva_k64")
    assert performance.verify(case, device) == ""
    monkeypatch.setattr(executor, "run_chain", lambda x: executor.run_fused(x) * 1.01)
    problem = performance.verify(case, device)
    assert "operator and chain differ by" in problem
    row = performance.measure(case, device, problem)
    assert row[report.RESULT] == report.FAILED and row[report.REASON] == problem


@pytest.mark.slow
def test_every_frozen_accuracy_case_passes(tmp_path, device):
    done = run_local("accuracy", "--device", device, folder=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


@pytest.mark.parametrize("backend, chunk_size, allowed", [("npu", 16, True), ("npu", 64, False), ("gpu", 16, False)])
def test_only_chunks_that_the_ascend_kernel_does_not_take_may_run_the_chain(backend, chunk_size, allowed, monkeypatch):
    import mindspeed_kkt_plugin

    monkeypatch.setattr(mindspeed_kkt_plugin, "status", lambda: {"last": {"path": "two_call", "why": "a reason"}})
    api = object.__new__(plugin(EXECUTOR).KktSolveApi)
    api.role, api.device, api._run = "fused", backend, lambda: "the result"
    api.operands = SimpleNamespace(chunk_size=chunk_size)
    if allowed:
        assert api._checked_run() == "the result" and api.path == "two_call"
    else:
        with pytest.raises(RuntimeError, match="fell back to 'two_call': a reason"):
            api._checked_run()
