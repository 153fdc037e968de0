"""Runs a plan's compiled launches on CPU data and compares the result with the float64 reference.

How a program is executed is execute.py; how data is made is plans.py.
"""
from __future__ import annotations

from dataclasses import asdict, dataclass

import torch

from mindspeed_kkt_plugin import reference
from mindspeed_kkt_plugin.varlen import chunk_rows

from . import bind
from .execute import run as execute
from .parse import parse_module
from .plans import CHUNK

FP32_BOUND = 1e-5
ROUNDING_FACTOR = 1.1  # a 16-bit result may be this much worse than the exact one rounded once


@dataclass(frozen=True)
class Outcome:
    """findings: (kernel, text); error: worst (chunk, head)'s relative Frobenius error; bound: what is allowed."""

    op: str
    shape: str
    dtype: str
    kernels: tuple[str, ...]
    findings: tuple[tuple[str, str], ...]
    error: float
    bound: float
    zeros_outside: bool

    @property
    def sound(self) -> bool:
        """No finding, a result within the bound, zeros in rows outside every sequence. A NaN error is not within."""
        return not self.findings and self.error <= self.bound and self.zeros_outside

    def as_dict(self) -> dict:
        return {**asdict(self), "sound": self.sound}

    def text(self) -> str:
        lines = [f"{self.op} {self.shape} {self.dtype}: ran {', '.join(self.kernels)}"]
        lines += [f"  FAULT in {kernel}: {finding}" for kernel, finding in self.findings]
        within = "within" if self.error <= self.bound else "ABOVE"
        lines.append(f"  worst chunk's relative error {self.error:.3g}, {within} the bound {self.bound:.3g}")
        if not self.zeros_outside:
            lines.append("  WRONG: rows outside every sequence are not zero")
        return "\n".join(lines)


def run(plan, compiled: list, target: str) -> Outcome:
    """Execute `compiled`, the launches of `plan`, in order on the plan's CPU tensors. Stops after a faulty launch."""
    findings, fresh = [], set(plan.fresh)
    launches = [[a.value.untyped_storage().data_ptr() if a.kind == "tensor" else None for a in one.args]
                for one in compiled]
    for turn, (one, addresses) in enumerate(zip(compiled, launches, strict=True)):
        unwritten = [index for index, address in enumerate(addresses) if address in fresh]
        read_later = {plan.output.untyped_storage().data_ptr()}.union(*launches[turn + 1:])
        scratch = [index for index in unwritten if addresses[index] not in read_later]
        result = execute(parse_module(one.hivm), one.grid, bind.arrays(one), target, unwritten=unwritten,
                         scratch=scratch)
        fresh.difference_update(addresses)
        findings += [(one.name, str(finding)) for finding in result.findings]
        if findings:
            break
    offsets = plan.inputs["cu_seqlens"]
    exact = reference.kkt_solve(**plan.inputs, chunk_size=CHUNK)
    out = plan.output
    floor = worst_error(exact.to(out.dtype), exact, offsets)
    bound = FP32_BOUND if out.dtype == torch.float32 else ROUNDING_FACTOR * floor
    rows, valid = chunk_rows(out.shape[1], CHUNK, offsets)
    outside = torch.ones(out.shape[1], dtype=torch.bool)
    outside[rows[valid]] = False
    return Outcome(plan.op, str(plan.shape), plan.dtype, tuple(one.name for one in compiled), tuple(findings),
                   worst_error(out, exact, offsets), bound, bool((out[:, outside] == 0).all()))


def worst_error(out: torch.Tensor, exact: torch.Tensor, cu_seqlens: torch.Tensor | None) -> float:
    """Largest relative Frobenius error of one (chunk, head); NaN or infinity when the result holds one."""
    rows, valid = chunk_rows(exact.shape[1], CHUNK, cu_seqlens)
    keep = valid[:, :, None, None]
    gap = torch.where(keep, (out.double() - exact)[:, rows], 0).square().sum((2, 4))
    return (gap / torch.where(keep, exact[:, rows], 0).square().sum((2, 4))).sqrt().max().item()
