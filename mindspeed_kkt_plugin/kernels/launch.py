"""A kernel launch as data, so that what the operator runs is exactly what npusim compiles and times.

Kernel modules build a list of `Launch` (their plan); `op.py` runs it on real tensors, npusim reads it with
CPU or meta tensors. Nothing here touches a device.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Launch:
    """One launch of a `@triton.jit` kernel.

    kernel: the JITFunction; grid: programs per axis; args: run-time arguments by parameter name (tensors, ints,
    floats, None); constants: `tl.constexpr` parameters by name; options: compiler options (for example multibuffer).
    """

    name: str
    kernel: Any
    grid: tuple[int, ...]
    args: dict[str, Any]
    constants: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        self.kernel[self.grid](**self.args, **self.constants, **self.options)
