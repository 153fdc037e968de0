"""`check_report.py` passes a clean report and finds every kind of failure that ATK's exit status hides."""
from __future__ import annotations

import json
import sys

import pytest

from ut.atk.package import frozen, module
from ut.atk_standin import report

ACCURACY_ROW = {"运行结果": "SUCCESS", "失败原因": "", "npu_dut_精度通过": "-", "npu_gold_精度通过": "True"}
PERFORMANCE_ROW = {
    "运行结果": "SUCCESS", "失败原因": "", "npu_dut_Device性能（us）": 50.0, "npu_gold_Device性能（us）": 100.0,
    "npu_dut/npu_gold_Device性能比": 2.0,
}  # fmt: skip


def rows(task: str, count: int = 3) -> list[dict]:
    row = PERFORMANCE_ROW if task == "performance" else ACCURACY_ROW
    return [{"编号": i, **row} for i in range(count)]


def run(table: list[dict], task: str, folder, *options: str, cases: int = 3, log: str | None = None) -> int:
    kind = "performance" if task == "performance" else "accuracy"
    (folder / "cases.json").write_text(json.dumps(frozen(kind)[:cases]))
    path = report.write(table, [{}], folder, "r")
    arguments = [str(path), "--cases", str(folder / "cases.json"), "--task", task, *options]
    if log is not None:
        (folder / "atk.log").write_text(log)
        arguments += ["--log", str(folder / "atk.log")]
    return module("check_report").main(arguments)


@pytest.mark.parametrize("task", ["accuracy", "performance", "determinism"])
def test_clean_report_passes(task, tmp_path):
    assert run(rows(task), task, tmp_path, log="atk task success!\n") == 0


@pytest.mark.parametrize("task", ["accuracy", "performance"])
def test_csv_report_is_read_where_openpyxl_is_missing(task, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert run(rows(task), task, tmp_path) == 0
    assert list(tmp_path.glob("*_reports_*.csv"))
    broken = rows(task)
    broken[1]["运行结果"] = "FAILED"
    assert run(broken, task, tmp_path) == 1


FAILURES = {
    "case failed": ("accuracy", {"运行结果": "FAILED", "失败原因": "boom"}, "case 1: FAILED boom"),
    "case timed out": ("accuracy", {"运行结果": "TIMEOUT"}, "case 1: TIMEOUT"),
    "not run": ("accuracy", {"运行结果": "NOT_RUN"}, "case 1: NOT_RUN"),
    "accuracy false": ("accuracy", {"npu_gold_精度通过": "False"}, "npu_gold_精度通过 is not passed"),
    "no verdict": ("accuracy", {"npu_gold_精度通过": "-"}, "no accuracy verdict"),
    "not repeatable": ("determinism", {"npu_gold_精度通过": "False"}, "is not passed"),
    "zero time": ("performance", {"npu_dut_Device性能（us）": 0}, "the measurement failed"),
    "no time": ("performance", {"npu_gold_Device性能（us）": "-"}, "device times of 1 nodes"),
    "no ratio": ("performance", {"npu_dut/npu_gold_Device性能比": "-"}, "no device ratio"),
    "ratio too small": ("performance", {"npu_dut/npu_gold_Device性能比": 0.5}, "below 0.95"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failure_of_one_case_is_found(name, tmp_path, capsys):
    task, change, message = FAILURES[name]
    table = rows(task)
    table[1].update(change)
    assert run(table, task, tmp_path) == 1
    assert message in capsys.readouterr().out


def test_missing_case_is_found(tmp_path, capsys):
    assert run(rows("accuracy", 2), "accuracy", tmp_path) == 1
    assert "1 of 3 cases are not in the report" in capsys.readouterr().out


def test_average_below_the_asked_one_is_found(tmp_path, capsys):
    table = rows("performance")
    for row in table:
        row["npu_dut/npu_gold_Device性能比"] = 0.97
    assert run(table, "performance", tmp_path) == 1
    assert "average ratio 0.9700 below 1.0" in capsys.readouterr().out


def test_empty_report_is_a_failure(tmp_path):
    assert run([{"编号": "", "运行结果": ""}], "accuracy", tmp_path) == 1


@pytest.mark.parametrize("line", ["atk task failed!", "custom API executor_x not found", "The op_summary is null"])
def test_failure_that_only_the_log_shows_is_found(line, tmp_path, capsys):
    assert run(rows("accuracy"), "accuracy", tmp_path, log=f"start\n{line}\n") == 1
    assert line in capsys.readouterr().out


def test_cases_left_out_are_accepted_on_request(tmp_path):
    table = rows("accuracy")
    table[2]["运行结果"] = "NOT_RUN"
    assert run(table, "accuracy", tmp_path, "--allow-not-run") == 0


def test_missing_file_is_named(tmp_path, capsys):
    arguments = [str(tmp_path / "none.xlsx"), "--cases", str(tmp_path / "no.json"), "--task", "accuracy"]
    assert module("check_report").main(arguments) == 1
    assert "none.xlsx: no such file" in capsys.readouterr().err
