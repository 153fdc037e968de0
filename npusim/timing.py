"""Estimated time of a whole plan: its launches, what torch runs between them, and launch cost.

One program's time is time.py; the constants are machine.py's. Every figure is an estimate.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from . import bind
from .machine import machine
from .parse import parse_module
from .time import estimate, memory_kernel_us


@dataclass(frozen=True)
class PlanTiming:
    """kernels: (name, Timing) per launch; torch: (name, µs) per fill or copy; launch_us: host gap per launch."""

    op: str
    shape: str
    dtype: str
    target: str
    kernels: tuple[tuple[str, Any], ...]
    torch: tuple[tuple[str, float], ...]
    launch_us: float

    @property
    def total_us(self) -> float:
        """Device time of everything the operator runs, as a profiler would add it up, without gaps between launches."""
        return sum(timing.us for _, timing in self.kernels) + sum(us for _, us in self.torch)

    @property
    def with_launches_us(self) -> float:
        """Device time plus one host gap per kernel: what an eager caller sees when nothing hides the gaps."""
        return self.total_us + (len(self.kernels) + len(self.torch)) * self.launch_us

    def as_dict(self) -> dict:
        kernels = [{"name": name, **timing.as_dict()} for name, timing in self.kernels]
        kernels += [{"name": f"torch {name}", "us": us, "kind": "estimated"} for name, us in self.torch]
        return {"op": self.op, "shape": self.shape, "dtype": self.dtype, "target": self.target, "kernels": kernels,
                "total_us": self.total_us, "launch_us": self.launch_us, "with_launches_us": self.with_launches_us,
                "kind": "estimated"}

    def text(self) -> str:
        lines = [f"{self.op} {self.shape} {self.dtype} on {self.target}: {self.total_us:.1f} µs (estimated)"]
        for name, timing in self.kernels:
            busy = ", ".join(f"{pipe} {share:.0%}" for pipe, share in
                             sorted(timing.pipes.items(), key=lambda item: -item[1]) if share >= 0.01)
            lines.append(f"  {name}: {timing.us:.1f} µs, limited by {timing.critical}; busy: {busy}")
            lines.append("    MB: " + ", ".join(f"{key} {value / 1e6:.1f}" for key, value in timing.gm_bytes.items()))
            waits = sorted(timing.waits.items(), key=lambda item: -item[1])[:4]
            lines.append("    waits of the slowest block: " + ", ".join(f"{why} {us:.1f} µs" for why, us in waits))
        lines += [f"  torch {name}: {us:.1f} µs" for name, us in self.torch]
        lines.append(f"  with {self.launch_us:.0f} µs of host per launch: {self.with_launches_us:.1f} µs")
        return "\n".join(lines)


def estimate_plan(plan, compiled: list, target: str, trace: bool = False) -> PlanTiming:
    """Time every launch of `compiled`, the compiled form of `plan.launches`."""
    kernels = tuple((one.name, estimate(_parsed(one.hivm), one.grid, bind.arrays(one), target, trace=trace))
                    for one in compiled)
    torch = tuple((op.name, memory_kernel_us(op.read_bytes, op.written_bytes, target)) for op in plan.torch_ops)
    return PlanTiming(plan.op, str(plan.shape), plan.dtype, target, kernels, torch, machine(target).launch_us.value)


@lru_cache(maxsize=32)
def _parsed(hivm: str):
    return parse_module(hivm)
