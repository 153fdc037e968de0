"""ATK's accuracy standards, from their public descriptions: each takes tensors and returns (passed, figures).

A golden with NaN or Inf is refused here, while ATK passes it.
"""
from __future__ import annotations

import torch

NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
ERROR_THRESHOLD = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-14}
SMALL_ERROR = {"fp16": 2.0**-16, "bf16": 2.0**-16, "fp32": 2.0**-30}
SMALL_COUNT_RATIO = 2
SINGLE_ERROR = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-14}


def _double(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [x.detach().cpu().double().flatten() for x in tensors]


def _errors(out: torch.Tensor, golden: torch.Tensor, dtype: str) -> dict[str, float]:
    gap = (out - golden).abs()
    large = golden.abs() > ERROR_THRESHOLD[dtype]
    relative = (gap / golden.abs().clamp_min(1e-7))[large]
    return {
        "max_re": relative.max().item() if relative.numel() else 0.0,
        "avg_re": relative.mean().item() if relative.numel() else 0.0,
        "root_mean_squared": gap[large].square().mean().sqrt().item() if relative.numel() else 0.0,
        "small_count": int((gap[~large] > SMALL_ERROR[dtype]).sum()),
    }


def cv_fused_double_benchmark(dut, benchmark, golden, dtype: str, limits: dict) -> tuple[bool, dict]:
    """Errors of the device under test over those of a benchmark, each against the golden."""
    dut, benchmark, golden = _double(dut, benchmark, golden)
    mine, other = _errors(dut, golden, dtype), _errors(benchmark, golden, dtype)
    floor = ERROR_THRESHOLD[dtype]
    ratios = {key: mine[key] / max(other[key], floor) for key in ("max_re", "avg_re", "root_mean_squared")}
    ratios["small_count"] = mine["small_count"] / max(other["small_count"], 1)
    allowed = {**{key: limits[f"{key}_ratio"] for key in list(ratios)[:3]}, "small_count": SMALL_COUNT_RATIO}
    return all(ratios[key] <= allowed[key] for key in ratios), {f"{key}_ratio": value for key, value in ratios.items()}


def mixed_tolerance_bm(dut, benchmark, golden, dtype: str, limits: dict) -> tuple[bool, dict]:
    """Enough elements within atol + rtol |golden|, and every one within an absolute or a ULP bound."""
    own = {key.removeprefix(f"{dtype}_"): value for key, value in limits.items() if key.startswith(f"{dtype}_")}
    dut, golden = _double(dut, golden)
    gap = (dut - golden).abs()
    share = (gap <= own["atol"] + own["rtol"] * golden.abs()).double().mean().item() if gap.numel() else 1.0
    finfo = torch.finfo({name: kind for kind, name in NAMES.items()}[dtype])
    exponent = torch.floor(torch.log2(golden.abs().clamp_min(finfo.tiny)))
    ulps = gap / (finfo.eps * torch.exp2(exponent))
    beyond = (gap > own["max_abs_error_limit"]) & (ulps > own["max_ulp_multiple"])
    passed = share >= own["required_matched_ratio"] and not beyond.any()
    return bool(passed), {"matched_share": share, "beyond_limit": int(beyond.sum())}


def single_bm(dut, benchmark, golden, dtype: str, limits: dict) -> tuple[bool, dict]:
    """Absolute error below |golden| = 1, relative from there on; the largest counts."""
    dut, golden = _double(dut, golden)
    worst = ((dut - golden).abs() / golden.abs().clamp_min(1)).max().item() if golden.numel() else 0.0
    return worst <= limits.get(f"{dtype}_error", SINGLE_ERROR[dtype]), {"max_error": worst}


STANDARDS = {f.__name__: f for f in (cv_fused_double_benchmark, mixed_tolerance_bm, single_bm)}


def judge(acc: dict, dut: torch.Tensor, benchmark: torch.Tensor, golden: torch.Tensor) -> tuple[bool, dict]:
    """Apply a case's `standard.acc` to the three outputs of a case."""
    shapes = {tuple(x.shape) for x in (dut, benchmark, golden)}
    if len(shapes) != 1:
        return False, {"reason": f"shapes differ: {sorted(shapes)}"}
    if not torch.isfinite(golden).all():
        return False, {"reason": "the golden holds NaN or Inf"}
    if not torch.isfinite(dut.float()).all():
        return False, {"reason": "the result holds NaN or Inf"}
    name, limits = next(iter(acc.items()))
    return STANDARDS[name](dut, benchmark, golden, NAMES[dut.dtype], limits)
