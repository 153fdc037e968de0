"""`run_atk.sh` against a fake `atk` that records its arguments and hands out a prepared report, exiting 0 always."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ut.atk.package import OPERATOR, PACKAGE, frozen
from ut.atk_standin import report

FAKE_ATK = """#!/usr/bin/env bash
if [[ "${1:-}" == --version ]]; then echo 26.8.8; exit 0; fi
echo "$*" >> "$FAKE_ATK_CALLS"
if [[ -n "${FAKE_ATK_REPORT:-}" ]]; then
  mkdir -p atk_output/x/report
  cp "$FAKE_ATK_REPORT" "atk_output/x/report/r_$RANDOM.xlsx"
fi
echo "${FAKE_ATK_SAYS:-atk task success!}"
exit 0
"""
DETAILS = {
    "accuracy": {"npu_gold_精度通过": "True"},
    "determinism": {"npu_dut_精度通过": "True"},
    "performance": {
        "npu_dut_Device性能（us）": 50.0, "npu_gold_Device性能（us）": 100.0, "npu_dut/npu_gold_Device性能比": 2.0,
    },
}  # fmt: skip


@pytest.fixture
def package(tmp_path) -> Path:
    """A copy of the package, so that the script's output lands outside the checkout."""
    copied = tmp_path / OPERATOR
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__", "result", "atk_output"))
    fake = tmp_path / "bin" / "atk"
    fake.parent.mkdir()
    fake.write_text(FAKE_ATK)
    fake.chmod(0o755)
    return copied


def prepared(scope: str, folder: Path, **change) -> Path:
    cases = frozen("performance" if scope == "performance" else "accuracy")
    rows = [{"编号": case["id"], "运行结果": "SUCCESS", "失败原因": "", **DETAILS[scope]} for case in cases]
    rows[1].update(change)
    return report.write(rows, [{}], folder, scope)


def run(package: Path, *arguments: str, with_atk: bool = True, **environment: str) -> subprocess.CompletedProcess:
    path = "/usr/bin:/bin"
    clean = {"PATH": f"{package.parent / 'bin'}:{path}" if with_atk else path, "PYTHON": sys.executable}
    clean |= {"FAKE_ATK_CALLS": str(package.parent / "calls"), "HOME": os.environ.get("HOME", "/"), **environment}
    command = ["bash", str(package / "run_atk.sh"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=clean, check=False)


def calls(package: Path) -> list[str]:
    return (package.parent / "calls").read_text().splitlines()


@pytest.mark.parametrize("scope", DETAILS)
def test_passing_report_exits_zero(scope, package, tmp_path):
    report_path = prepared(scope, tmp_path)
    done = run(package, scope, "3", FAKE_ATK_REPORT=str(report_path), STANDARD="cv_fused_double_benchmark")
    assert done.returncode == 0, done.stdout + done.stderr
    (call,) = calls(package)
    assert f"executor_{OPERATOR}.py" in call and ".." not in call
    wanted = {
        "accuracy": "-n result/nodes_acc.yaml --task accuracy -bd cpu -sd",
        "performance": "-n result/nodes_perf.yaml --task performance_device",
        "determinism": "--devices 3 --name dut node --backend cpu --is_compare False task --task accuracy_dc",
    }
    assert wanted[scope] in call
    if scope != "determinism":
        assert "devices: [3]" in (package / call.split(" -n ")[1].split()[0]).read_text()


BAD_CELLS = {
    "accuracy": {"npu_gold_精度通过": "False"},
    "determinism": {"运行结果": "FAILED"},
    "performance": {"npu_dut_Device性能（us）": 0.0},
}


@pytest.mark.parametrize("scope", DETAILS)
def test_failing_case_fails_the_script_although_atk_exits_zero(scope, package, tmp_path):
    report_path = prepared(scope, tmp_path, **BAD_CELLS[scope])
    done = run(package, scope, FAKE_ATK_REPORT=str(report_path), STANDARD="cv_fused_double_benchmark")
    assert done.returncode == 1 and "case 1" in done.stdout


@pytest.mark.parametrize("standard", ["mixed_tolerance_bm", "single_bm"])
def test_single_benchmark_standards_use_the_cpu_reference(standard, package, tmp_path):
    done = run(package, "accuracy", FAKE_ATK_REPORT=str(prepared("accuracy", tmp_path)), STANDARD=standard)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "-n result/nodes_single.yaml" in calls(package)[0]
    assert standard in (package / "result" / f"atk_{OPERATOR}.json").read_text()


def test_unregistered_executor_fails_the_script(package, tmp_path):
    done = run(
        package, "accuracy", STANDARD="single_bm", FAKE_ATK_REPORT=str(prepared("accuracy", tmp_path)),
        FAKE_ATK_SAYS="custom API executor_kkt_solve not found",
    )  # fmt: skip
    assert done.returncode == 1 and "not found" in done.stdout


def test_missing_report_fails_the_script(package):
    done = run(package, "accuracy", STANDARD="single_bm")
    assert done.returncode == 2 and "atk wrote no report" in done.stderr


def test_all_runs_every_scope_and_remembers_a_failure(package, tmp_path):
    done = run(package, "all", FAKE_ATK_REPORT=str(prepared("accuracy", tmp_path)), STANDARD="single_bm")
    assert done.returncode == 1, "the accuracy report holds no times, so performance must fail"
    tasks = [call.split("--task ")[1].split()[0] for call in calls(package)]
    assert tasks == ["accuracy", "performance_device", "accuracy_dc"]


def test_gen_cases_uses_both_designs(package):
    assert run(package, "gen_cases").returncode == 0
    assert [call.split()[2] for call in calls(package)] == [f"{OPERATOR}.yaml", f"{OPERATOR}_perf.yaml"]


@pytest.mark.parametrize("arguments, message", [((), "scope is ''"), (("fast",), "scope is 'fast'"),
                                                (("accuracy", "x"), "device id is 'x'")])
def test_bad_argument_is_named(arguments, message, package):
    done = run(package, *arguments)
    assert done.returncode == 2 and message in done.stderr


def test_without_atk_the_script_points_to_the_local_runner(package):
    done = run(package, "accuracy", with_atk=False)
    assert done.returncode == 2 and "run_local.py" in done.stderr
