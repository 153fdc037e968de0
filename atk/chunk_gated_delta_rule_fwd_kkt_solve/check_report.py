#!/usr/bin/env python3
"""Reads an ATK report (xlsx, or run_local.py's csv) and fails when a case failed: `atk` itself exits 0 then.

    python check_report.py REPORT --cases CASES.json --task accuracy|performance|determinism [--log LOG]

Exit status 0: every case is there and passed. 1: it is not. Column names differ between versions; suffixes decide.
"""
from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from pathlib import Path

ID_NAMES = ("编号", "id", "case_id")
RESULT, REASON, ACC_PASS, TIME, RATIO = "运行结果", "失败原因", "精度通过", "Device性能（us）", "Device性能比"
EMPTY = ("", "-", "none", "nan", "null")
DEFAULT_PERF = (0.95, 0.95)
LOG_FAILURES = re.compile(r"atk task failed|custom api.*not found|the op_summary is null", re.IGNORECASE)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The sheet `statistic` as dictionaries of strings."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(csv.DictReader(file))
    try:
        import openpyxl
    except ImportError:
        sys.exit(f"reading {path.name} needs openpyxl (pip install openpyxl)")
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    if "statistic" not in book.sheetnames:
        sys.exit(f"{path.name} has no sheet 'statistic', only {', '.join(book.sheetnames)}")
    table = list(book["statistic"].iter_rows(values_only=True))
    if not table:
        return []
    head = ["" if cell is None else str(cell).strip() for cell in table[0]]
    rows = [{key: "" if cell is None else str(cell) for key, cell in zip(head, row, strict=False)} for row in table[1:]]
    return [row for row in rows if any(row.values())]


def filled(row: dict[str, str], suffix: str) -> dict[str, str]:
    """Cells of the columns that end in `suffix` and hold something."""
    return {
        key: value.strip()
        for key, value in row.items()
        if (key == suffix or key.endswith("_" + suffix)) and value.strip().lower() not in EMPTY
    }


def case_id(row: dict[str, str]) -> str:
    found = next((row[name] for name in ID_NAMES if name in row), "")
    return found.removesuffix(".0")


def accuracy_problem(row: dict[str, str]) -> str | None:
    verdicts = filled(row, ACC_PASS)
    if not verdicts:
        return "no accuracy verdict"
    bad = [key for key, value in verdicts.items() if value.lower() not in ("true", "pass", "1", "通过")]
    return f"{', '.join(bad)} is not passed" if bad else None


def performance_problem(row: dict[str, str], least: float) -> str | None:
    times, ratios = filled(row, TIME), filled(row, RATIO)
    if len(times) < 2:
        return f"device times of {len(times)} nodes; the operator's and the baseline's are needed"
    zero = [key for key, value in times.items() if not float(value) > 0]
    if zero:
        return f"{', '.join(zero)} is not a positive time: the measurement failed"
    if not ratios:
        return "no device ratio"
    slow = {key: value for key, value in ratios.items() if float(value) < least}
    return f"{slow} below {least}" if slow else None


def perf_limits(cases: list[dict]) -> tuple[float, float]:
    """(average ratio, ratio of each case) that the case file asks for."""
    perf = cases[0]["standard"]["perf"]
    return tuple(perf) if isinstance(perf, list) else DEFAULT_PERF


def check(rows: list[dict[str, str]], cases: list[dict], task: str, allow_not_run: bool = False) -> list[str]:
    """Everything that is wrong with a report, one line each."""
    problems, seen, ratios = [], set(), []
    average, least = perf_limits(cases)
    for row in rows:
        name = case_id(row)
        seen.add(name)
        result = row.get(RESULT, "").strip().upper()
        if result == "NOT_RUN" and allow_not_run:
            continue
        if result != "SUCCESS":
            problems.append(f"case {name}: {result or 'no result'} {row.get(REASON, '')}".rstrip())
            continue
        problem = performance_problem(row, least) if task == "performance" else accuracy_problem(row)
        if problem:
            problems.append(f"case {name}: {problem}")
        elif task == "performance":
            ratios += [float(value) for value in filled(row, RATIO).values()]
    missing = {str(case["id"]) for case in cases} - seen
    if missing:
        problems.append(f"{len(missing)} of {len(cases)} cases are not in the report, first: {sorted(missing)[:5]}")
    if task == "performance" and ratios and sum(ratios) / len(ratios) < average:
        problems.append(f"average ratio {sum(ratios) / len(ratios):.4f} below {average}")
    return problems


def log_problems(text: str) -> list[str]:
    """Lines of ATK's log that mean a failure which its exit status hides."""
    return [f"log: {line.strip()}" for line in text.splitlines() if LOG_FAILURES.search(line)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--cases", type=Path, required=True, help="the case file that was run")
    parser.add_argument("--task", choices=("accuracy", "performance", "determinism"), required=True)
    parser.add_argument("--log", type=Path, help="ATK's log, searched for hidden failures")
    parser.add_argument("--allow-not-run", action="store_true", help="accept cases that run_local.py left out")
    options = parser.parse_args(arguments)
    for path in (options.report, options.cases, options.log):
        if path is not None and not path.is_file():
            print(f"{path}: no such file", file=sys.stderr)
            return 1
    cases = json.loads(options.cases.read_text(encoding="utf-8"))
    rows = read_rows(options.report)
    problems = check(rows, cases, options.task, options.allow_not_run)
    if options.log is not None:
        problems += log_problems(options.log.read_text(encoding="utf-8", errors="replace"))
    for problem in problems:
        print(problem)
    print(f"{options.task}: {len(rows)} rows for {len(cases)} cases, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
