"""Estimated time of a whole plan: its launches one after the other, what torch runs between, and launch cost.

One program's time is time.py; the constants are machine.py's. Every figure is an estimate.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from . import bind
from .machine import machine
from .parse import parse_module
from .time import estimate


@dataclass(frozen=True)
class PlanTiming:
    """kernels: Timing per launch; torch_us: fills and copies left to torch; launch_us: host gap per launch."""

    op: str
    shape: str
    dtype: str
    target: str
    names: tuple[str, ...]
    kernels: tuple[Any, ...]
    torch_ops: tuple[str, ...]
    torch_us: float
    launch_us: float

    @property
    def total_us(self) -> float:
        """Device time of the kernels, as a profiler would add it up; without torch's own and without launch gaps."""
        return sum(kernel.us for kernel in self.kernels)

    @property
    def with_launches_us(self) -> float:
        """Device time plus what torch runs plus one launch gap each: what a host-bound caller sees."""
        calls = len(self.kernels) + len(self.torch_ops)
        return self.total_us + self.torch_us + calls * self.launch_us

    def as_dict(self) -> dict:
        kernels = [{"name": name, **kernel.as_dict()} for name, kernel in zip(self.names, self.kernels, strict=True)]
        return {"op": self.op, "shape": self.shape, "dtype": self.dtype, "target": self.target, "kernels": kernels,
                "total_us": self.total_us, "torch_ops": list(self.torch_ops), "torch_us": self.torch_us,
                "launch_us": self.launch_us, "with_launches_us": self.with_launches_us, "kind": "estimated"}

    def text(self) -> str:
        lines = [f"{self.op} {self.shape} {self.dtype} on {self.target}: {self.total_us:.1f} µs (estimated)"]
        for name, kernel in zip(self.names, self.kernels, strict=True):
            busy = ", ".join(f"{pipe} {share:.0%}" for pipe, share in
                             sorted(kernel.pipes.items(), key=lambda item: -item[1]) if share >= 0.01)
            lines.append(f"  {name}: {kernel.us:.1f} µs, limited by {kernel.critical}; busy: {busy}")
            lines.append("    MB: " + ", ".join(f"{key} {value / 1e6:.1f}" for key, value in kernel.gm_bytes.items()))
            waits = sorted(kernel.waits.items(), key=lambda item: -item[1])[:4]
            lines.append("    waits of the slowest block: " + ", ".join(f"{why} {us:.1f} µs" for why, us in waits))
        if self.torch_ops:
            lines.append(f"  torch besides: {', '.join(self.torch_ops)}: {self.torch_us:.1f} µs")
        lines.append(f"  with {self.launch_us:.0f} µs per launch: {self.with_launches_us:.1f} µs")
        return "\n".join(lines)


def estimate_plan(plan, compiled: list, target: str, trace: bool = False) -> PlanTiming:
    """Time every launch of `compiled`, the compiled form of `plan.launches`."""
    timings = tuple(estimate(_parsed(one.hivm), one.grid, bind.arrays(one), target, trace=trace) for one in compiled)
    chip = machine(target)
    torch_us = sum(chip.kernel_start_us.value + op.gm_bytes / chip.hbm_tbytes.value / 1e6 for op in plan.torch_ops)
    return PlanTiming(plan.op, str(plan.shape), plan.dtype, target, tuple(one.name for one in compiled), timings,
                      tuple(op.name for op in plan.torch_ops), torch_us, chip.launch_us.value)


@lru_cache(maxsize=32)
def _parsed(hivm: str):
    return parse_module(hivm)
