"""Writes rows in the column style of ATK's workbook: sheets `statistic` and `summary`, xlsx or two csv files."""
from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

CASE_ID, NAME, RESULT, REASON, DETAIL = "编号", "名称", "运行结果", "失败原因", "精度详情"
ACC_PASS, DEVICE_TIME, E2E_TIME = "精度通过", "Device性能（us）", "端到端性能(us)"
DEVICE_RATIO, PERF_PASS = "Device性能比", "device性能通过"
SUCCESS, FAILED, NOT_RUN = "SUCCESS", "FAILED", "NOT_RUN"


def columns(rows: list[dict]) -> list[str]:
    """Every key of every row, in the order of first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def write(rows: list[dict], summary: list[dict], folder: Path, stem: str) -> Path:
    """Write the report and return the path of the file that `check_report.py` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{stem}_reports_{datetime.now():%Y%m%d_%H%M%S}"
    try:
        import openpyxl
    except ImportError:
        path = folder / f"{name}.csv"
        for sheet, table in ((path, rows), (folder / f"{name}_summary.csv", summary)):
            with sheet.open("w", newline="", encoding="utf-8-sig") as file:
                writer = csv.DictWriter(file, columns(table), restval="-")
                writer.writeheader()
                writer.writerows(table)
        return path
    book = openpyxl.Workbook()
    for sheet, table in ((book.active, rows), (book.create_sheet(), summary)):
        sheet.title = "statistic" if table is rows else "summary"
        head = columns(table)
        sheet.append(head)
        for row in table:
            sheet.append([_cell(row.get(key, "-")) for key in head])
        sheet.freeze_panes = "A2"
    path = folder / f"{name}.xlsx"
    book.save(path)
    return path


def _cell(value):
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else str(value)
