"""The stand-in's accuracy task: three roles per case, ATK's standard, then the project's own bounds.

On an accelerator the benchmark is the two-call chain there; on the CPU, where the operator runs under Triton's
interpreter, it is the reference in the result's precision. The golden is float64 on the CPU either way.
"""
from __future__ import annotations

import json
import time
from collections import Counter

from . import bounds, nodes, report
from .configs import CaseConfig
from .standards import judge

INTERPRETED_TASKS = 64  # (chunk, head) pairs of a case that the interpreter runs in a few seconds


def tasks(case: CaseConfig) -> int:
    """(chunk, head) pairs of a case."""
    values = {entry.name: entry for entry in case.inputs}
    batch, *gates = values["g"].shape
    length, heads = reversed(gates) if values["head_first"].range_values else gates
    text, size = values["cu_seqlens"].range_values, values["chunk_size"].range_values
    offsets = [0, length] if text == "none" else [int(part) for part in text.split(",")]
    return batch * heads * sum(-(-(b - a) // size) for a, b in zip(offsets, offsets[1:], strict=False))


def row_head(case: CaseConfig) -> dict:
    tensors = [entry for entry in case.inputs if entry.type == "tensor"]
    return {
        report.CASE_ID: case.id,
        report.NAME: case.name,
        "输入shape": json.dumps([entry.shape for entry in tensors]),
        "输入dtype": json.dumps([entry.dtype for entry in tensors]),
    }


def run_case(case: CaseConfig, device: str, max_tasks: int = INTERPRETED_TASKS) -> dict:
    """One row of the report. A failure of any kind becomes the row's reason; it is never swallowed."""
    backend = nodes.BACKENDS[device]
    benchmark = "0" if device == "cpu" else nodes.GOLD
    row, passed = row_head(case), f"{backend}_{benchmark}_{report.ACC_PASS}"
    if device == "cpu" and tasks(case) > max_tasks:
        reason = f"{tasks(case)} (chunk, head) pairs, more than {max_tasks}: needs --device cuda or npu"
        return {**row, report.RESULT: report.NOT_RUN, report.REASON: reason, passed: "-"}
    start = time.perf_counter()
    try:
        api, data = nodes.executor(case, backend, nodes.DUT)
        out = api(data, with_output=True)
        other = nodes.output(case, backend, benchmark)
        golden = nodes.output(case, "cpu", "0", golden=True)
        name = next(iter(case.standard.acc))
        ok, figures = judge(case.standard.acc, out, other, golden)
        own_ok, own = bounds.check(out, api.operands.to("cpu"), golden.double()) if ok else (False, {})
        detail = {name: figures, "bounds": own}
        reason = "" if ok and own_ok else f"{name} failed" if not ok else "the project's own bounds failed"
        row |= {report.RESULT: report.SUCCESS, report.REASON: reason, "执行路径": api.path}
        row |= {passed: str(ok and own_ok), report.DETAIL: json.dumps(detail)}
    except Exception as error:  # the report must hold every case; the reason names the error
        row |= {report.RESULT: report.FAILED, report.REASON: f"{type(error).__name__}: {error}", passed: "False"}
    return {**row, "耗时(s)": round(time.perf_counter() - start, 2)}


def summarise(rows: list[dict], device: str, device_name: str) -> dict:
    ran = [row for row in rows if row[report.RESULT] != report.NOT_RUN]
    good = [row for row in ran if any(key.endswith(report.ACC_PASS) and row[key] == "True" for key in row)]
    paths = Counter(row.get("执行路径", "-") for row in ran)
    return {
        report.NAME: f"{nodes.BACKENDS[device]}_{nodes.DUT}",
        "总用例数": len(rows),
        "执行用例个数": len(ran),
        "未执行用例个数": len(rows) - len(ran),
        "通过用例个数": len(good),
        "执行路径统计": ", ".join(f"{path} {count}" for path, count in paths.items()),
        "精度通过率": f"{len(good) / len(ran):.2%}" if ran else "-",
        "精度是否达标": "Pass" if ran and len(good) == len(ran) else "Failed",
        "数据来源": f"measured ({device_name})",
    }
