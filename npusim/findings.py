"""What a run can find wrong with a program, and how findings are collected: each once per pair of places.

Who detects what: memory.py races, overruns and poison; queues.py deadlocks and events left set.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from .memory import INDEX_BITS, INDEX_MASK, PIPE_BITS, PIPE_MASK, Access
from .views import CORE_NAMES, PIPES

MOST_FINDINGS = 200


@dataclass(frozen=True)
class Finding:
    """A fault. kind: out_of_bounds, poison_read, race, deadlock or event_left_set; line: in the IR text."""

    kind: str
    message: str
    block: int
    core: str
    line: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.message} (line {self.line}, block {self.block}, {self.core})"


@dataclass
class RunResult:
    """findings: each fault once per pair of places; blocks: the ones that ran. Outputs are in the caller's buffers."""

    findings: list[Finding] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)

    @property
    def kinds(self) -> set[str]:
        """The kinds of fault that were found."""
        return {f.kind for f in self.findings}


class Faults:
    """Collects findings, each once per kind and pair of lines."""

    def __init__(self) -> None:
        self.found: dict[tuple, Finding] = {}
        self.history: dict[tuple[int, int], list] = {}  # (block, pipe) -> instruction per running number

    def add(self, kind: str, message: str, block: int, core: str, line: int, other: int = 0) -> None:
        if len(self.found) < MOST_FINDINGS:
            self.found.setdefault((kind, line, other, core), Finding(kind, message, block, core, line))

    def report(self, kind: str, access: Access, text: str, other: int = 0) -> None:
        """What Memory calls; `other` is the stamp of the access before."""
        core, pipe = divmod(access.pipe, 7)
        message, line = f"{access.instr} on {PIPES[pipe]} {text}", 0
        if other:
            block, place = (other >> (INDEX_BITS + PIPE_BITS)) - 1, (other >> INDEX_BITS) & PIPE_MASK
            earlier = self.history[block, place][(other & INDEX_MASK) - 1]
            line = earlier.line
            where = "" if block == access.block else f" in block {block}"
            message += f" by {earlier} on {CORE_NAMES[place // 7]} {PIPES[place % 7]}{where}: nothing orders them"
        self.add(kind, message, access.block, CORE_NAMES[core], access.instr.line, line)
