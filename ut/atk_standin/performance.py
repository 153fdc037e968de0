"""The stand-in's performance_device task: the operator against the two-call chain, with rotated inputs.

Only `executor(data)` is inside the measurement. `verify` comes first and may run in parallel: it compiles the kernels
and makes sure that both give the same result; `measure` then times one case at a time.
"""
from __future__ import annotations

import copy
import math
from dataclasses import replace

import torch

from . import nodes, report, timing
from .accuracy import row_head
from .configs import CaseConfig

TARGET = "Ascend910B2"  # what the estimates of --device cpu are for
L2_BYTES = {"npu": 192 << 20}  # 910B; CUDA devices tell theirs
AGREEMENT = {torch.float32: 1e-5, torch.float16: 5e-4, torch.bfloat16: 4e-3}  # relative Frobenius; both round once


def _rotated(api, data, l2_bytes: int) -> timing.Calls:
    """Calls on copies of the inputs that together exceed the L2 cache twice, so that no call finds its inputs there."""
    x = api.operands
    moving = {name: t for name in ("k", "g", "beta") if (t := getattr(x, name)) is not None}
    size = sum(t.numel() * t.element_size() for t in moving.values())
    copies = []
    for _ in range(min(256, 2 + 2 * l2_bytes // size)):
        twin = copy.copy(api)
        twin.operands = replace(x, **{name: t.clone() for name, t in moving.items()})
        copies.append(lambda twin=twin: twin(data, with_output=False))
    return copies


def verify(case: CaseConfig, device: str) -> str:
    """'' when the operator and the chain agree on this case, else what is wrong."""
    try:
        backend = nodes.BACKENDS[device]
        mine, other = (nodes.output(case, backend, node) for node in (nodes.DUT, nodes.GOLD))
        gap, limit = relative_gap(mine, other), AGREEMENT[mine.dtype]
        return "" if gap <= limit else f"operator and chain differ by {gap:.3g} (allowed {limit})"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def relative_gap(mine: torch.Tensor, other: torch.Tensor) -> float:
    mine, other = mine.double(), other.double()
    return ((mine - other).norm() / other.norm()).item()


def _measured(case: CaseConfig, device: str, node: str) -> tuple[float, float]:
    api, data = nodes.executor(case, nodes.BACKENDS[device], node)
    if device == "cuda":
        calls = _rotated(api, data, torch.cuda.get_device_properties(0).L2_cache_size)
        return timing.cuda_device_us(calls), timing.end_to_end_us(calls, torch.cuda.synchronize)
    calls = _rotated(api, data, L2_BYTES[device])
    return timing.npu_device_us(calls), timing.end_to_end_us(calls, torch.npu.synchronize)


def _estimated(case: CaseConfig, op: str) -> float:
    values = {entry.name: entry for entry in case.inputs}
    asked = {name: values[name].range_values for name in values if values[name].type == "attr"}
    plain = {"chunk_size": 64, "output_dtype": "same", "head_first": False, "output_head_first": False}
    plain |= {"use_g": True, "use_beta": True}
    other = {name: asked[name] for name in plain if asked[name] != plain[name]}
    if other:
        raise NotImplementedError(f"npusim's command has no option for {other}")
    B, T, H, K = values["k"].shape
    shape = (B, T, H, values["g"].shape[2], K)
    return timing.npusim_us(op, shape, values["k"].dtype, asked["cu_seqlens"], TARGET)


def measure(case: CaseConfig, device: str, problem: str = "") -> dict:
    """One row of the report: both times, and their ratio chain / operator (above 1: the operator is faster)."""
    backend = nodes.BACKENDS[device]
    dut, gold = f"{backend}_{nodes.DUT}", f"{backend}_{nodes.GOLD}"
    row = row_head(case)
    if problem:
        return {**row, report.RESULT: report.FAILED, report.REASON: problem}
    try:
        if device == "cpu":
            times = {dut: (_estimated(case, "fused"), None), gold: (_estimated(case, "unfused"), None)}
        else:
            times = {label: _measured(case, device, node) for label, node in ((dut, nodes.DUT), (gold, nodes.GOLD))}
    except NotImplementedError as error:
        return {**row, report.RESULT: report.NOT_RUN, report.REASON: str(error)}
    except Exception as error:
        return {**row, report.RESULT: report.FAILED, report.REASON: f"{type(error).__name__}: {error}"}
    row |= {report.RESULT: report.SUCCESS, report.REASON: ""}
    for label, (device_us, wall_us) in times.items():
        row[f"{label}_{report.DEVICE_TIME}"] = round(device_us, 3)
        row[f"{label}_{report.E2E_TIME}"] = "-" if wall_us is None else round(wall_us, 3)
    ratio = times[gold][0] / times[dut][0]
    row[f"{dut}/{gold}_{report.DEVICE_RATIO}"] = round(ratio, 4)
    row[f"{gold}_{report.PERF_PASS}"] = str(ratio >= perf_limits(case)[1])
    return row


def perf_limits(case: CaseConfig) -> tuple[float, float]:
    """(average ratio, ratio of each case) that the case asks for."""
    perf = case.standard.perf
    return tuple(perf) if isinstance(perf, list) else (0.95, 0.95)


def summarise(rows: list[dict], cases: list[CaseConfig], device: str, device_name: str) -> dict:
    backend = nodes.BACKENDS[device]
    ratios = [value for row in rows for key, value in row.items() if key.endswith(report.DEVICE_RATIO)]
    ran = [row for row in rows if row[report.RESULT] != report.NOT_RUN]
    good = [row for row in ran if row.get(f"{backend}_{nodes.GOLD}_{report.PERF_PASS}") == "True"]
    average = sum(ratios) / len(ratios) if ratios else 0.0
    met = bool(ran) and len(good) == len(ran) and average >= max(perf_limits(case)[0] for case in cases)
    source = f"estimated (npusim, {TARGET})" if device == "cpu" else f"measured ({device_name})"
    return {
        report.NAME: f"{backend}_{nodes.DUT}",
        "总用例数": len(rows),
        "执行用例个数": len(ran),
        "未执行用例个数": len(rows) - len(ran),
        "通过用例个数": len(good),
        "device性能通过率": f"{len(good) / len(ran):.2%}" if ran else "-",
        "平均device性能比": round(average, 4),
        "最小device性能比": min(ratios, default="-"),
        "几何平均device性能比": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 4) if ratios else "-",
        "最大device性能比": max(ratios, default="-"),
        "device性能是否达标": "Pass" if met else "Failed",
        "数据来源": source,
    }
