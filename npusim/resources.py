"""What a compiled program needs: on-chip memory, workspace, hand-offs and instructions per task, how the split went.

Read off the program's text without running it; times are time.py's matter.
"""
from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from .errors import UnsupportedError
from .mlir_text import BITS, MemRef, parse_type
from .parse import Func, Module, Op, parse_module

# Memory space in the IR -> name in the target's limits. L0A and L0B are filled inside mmadL1 and not planned here.
SPACES = {"ub": "UB", "cbuf": "L1", "ca": "L0A", "cb": "L0B", "cc": "L0C"}
NAME = re.compile(r"%[\w.$-]+(?:#\d+)?")


@dataclass(frozen=True)
class Counts:
    """Per iteration of the task loop (or per program without one), tails left out.

    vector, cube: instructions; gm_reads, gm_writes: transfers; waits: cross-core waits (one hand-off each);
    barriers: pipe barriers; scalar: accesses of single elements of on-chip tiles; open_loops: inner loops whose trip
    count is not a constant, counted as one pass.
    """

    vector: int = 0
    cube: int = 0
    gm_reads: int = 0
    gm_writes: int = 0
    waits: int = 0
    barriers: int = 0
    scalar: int = 0
    open_loops: int = 0

    def as_dict(self) -> dict:
        return asdict(self)

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: value + getattr(other, name) for name, value in asdict(self).items()})

    def __mul__(self, times: int) -> Counts:
        return Counts(**{name: value * (1 if name == "open_loops" else times) for name, value in asdict(self).items()})


@dataclass(frozen=True)
class Resources:
    """used_bits, limit_bits: per memory (UB, L1, L0C); split: see `vector_split`; per_task: core type -> Counts."""

    core_type: str
    used_bits: dict[str, int]
    limit_bits: dict[str, int | None]
    workspace_bytes_per_block: int
    workspace_bytes: int
    split: str
    per_task: dict[str, Counts]
    messages: tuple[str, ...]

    def as_dict(self) -> dict:
        return asdict(self)


def measure(compiled) -> Resources:
    """Resources of a `Compiled` launch; UnsupportedError names an allocation whose size the text does not give."""
    module = parse_module(compiled.hivm)
    blocks = compiled.grid[0] * compiled.grid[1] * compiled.grid[2]
    used = memory_bits(module)
    limits = {name: module.target_spec.get(f"{name}_SIZE") for name in SPACES.values()}
    vector = [func for func in module.kernels() if func.core == "AIV"]
    split = vector_split(vector[0]) if module.core_type == "MIX" and vector else "one block each" if vector else "none"
    return Resources(module.core_type, used, limits, module.workspace_bytes, module.workspace_bytes * blocks, split,
                     {func.core: count(func) for func in module.kernels()}, compiled.messages)


def memory_bits(module: Module) -> dict[str, int]:
    """Highest planned address of each on-chip memory, in bits."""
    used: dict[str, int] = {}
    for func in module.kernels():
        constants = _constants(func)
        for op in walk(func.body):
            if op.name != "hivm.hir.pointer_cast":
                continue
            kind = parse_type(op.text.rsplit(" : ", 1)[1])
            if kind.space not in SPACES:
                raise UnsupportedError(f"line {op.line}: memory space {kind.space!r} is not known")
            size = _bits(kind, op)
            for name in NAME.findall(op.text.split(")")[0]):
                if name not in constants:
                    raise UnsupportedError(f"line {op.line}: {op.name} at {name}, which is not a constant")
                end = constants[name] * 8 + size
                used[SPACES[kind.space]] = max(used.get(SPACES[kind.space], 0), end)
    return used


def _bits(kind: MemRef, op: Op) -> int:
    if None in kind.shape:
        raise UnsupportedError(f"line {op.line}: {op.name} of dynamic size {op.text[:80]!r}")
    elements = 1
    for extent in kind.shape:
        elements *= extent
    return elements * BITS[kind.dtype]


def vector_split(func: Func) -> str:
    """How the two vector cores of a mixed kernel divide the work, judged by what they write.

    "shared": every write goes to a place that depends on the sub-block index; "repeated": both compute everything and
    one of them writes (or both write the same); "partly shared": some of each; "no writes" when there is none.
    """
    shared = repeated = 0
    for guarded, own_place in _writes(func.body, set(), False, False):
        shared += own_place and not guarded
        repeated += guarded or not own_place
    if not shared and not repeated:
        return "no writes"
    return "shared" if not repeated else "repeated" if not shared else "partly shared"


def _writes(ops: list[Op], tainted: set[str], guarded: bool, in_split_loop: bool):
    """GM writes as (under a test of the sub-block index, at a place that depends on that index)."""
    for op in ops:
        names = set(NAME.findall(op.text)) | {name for group in op.groups.values() for name, _ in group}
        depends = op.name == "hivm.hir.get_sub_block_idx" or bool(names & tainted)
        if depends:
            tainted.update(op.results)
        if op.name == "hivm.hir.store":
            targets = {name for name, _ in op.groups.get("outs", [])}
            yield guarded, in_split_loop or bool(targets & tainted)
        split_loop = in_split_loop or (op.name == "scf.for" and depends)
        if op.name == "scf.for" and depends:
            tainted.update(NAME.findall(op.text)[:1])  # the induction variable
        for region in op.regions:
            yield from _writes(region, tainted, guarded or (op.name == "scf.if" and depends), split_loop)


def count(func: Func) -> Counts:
    """Counts of the function's task loop, the outermost loop that writes results; without one, of the whole body."""
    constants = _constants(func)
    bodies = [_count(op.regions[0], constants) for op in func.body if op.name == "scf.for"]
    writing = [counts for counts in bodies if counts.gm_writes]
    return max(writing, key=lambda c: c.vector + c.cube) if writing else _count(func.body, constants)


def _count(ops: list[Op], constants: dict[str, int]) -> Counts:
    total = Counts()
    for op in ops:
        total += _one(op)
        if op.name == "scf.for":
            trips = _trips(op, constants)
            body = _count(op.regions[0], constants)
            total += body * trips if trips is not None else body + Counts(open_loops=1)
        elif op.name == "scf.if":
            if "hivm.unlikely_condition" not in op.attrs:
                branches = [_count(region, constants) for region in op.regions]
                total += max(branches, key=lambda c: (c.vector + c.cube + c.gm_reads + c.gm_writes, c.scalar))
        else:
            for region in op.regions:
                total += _count(region, constants) + Counts(open_loops=1)
    return total


def _one(op: Op) -> Counts:
    short = op.name.removeprefix("hivm.hir.")
    if op.name in ("memref.load", "memref.store"):
        return Counts(scalar=int("address_space<gm>" not in op.text))
    if not op.name.startswith("hivm.hir."):
        return Counts()
    return Counts(vector=int(bool(re.match(r"v[a-z]", short))), cube=int(short.startswith("mmad")),
                  gm_reads=int(short in ("load", "nd2nz")), gm_writes=int(short in ("store", "fixpipe")),
                  waits=int(short == "sync_block_wait"), barriers=int(short == "pipe_barrier"))


def _trips(loop: Op, constants: dict[str, int]) -> int | None:
    bounds = re.match(r"%\S+ = (\S+) to (\S+) step (\S+)", loop.text)
    values = [constants.get(name) for name in bounds.groups()] if bounds else [None]
    if None in values:
        return None
    low, high, step = values
    return max(0, -(-(high - low) // step))


def _constants(func: Func) -> dict[str, int]:
    found = {}
    for op in walk(func.body):
        if op.name == "arith.constant":
            value = op.text.split(" :")[0].strip()
            if re.fullmatch(r"-?\d+", value):
                found[op.results[0]] = int(value)
    return found


def walk(ops: list[Op]):
    """Every op, outer before inner."""
    for op in ops:
        yield op
        for region in op.regions:
            yield from walk(region)
