"""Runs the engines of one block against each other: the cube core and its two vector cores, or a single core.

An engine is what a lowered program calls (execute.py's or time.py's). Its program yields while the engine has to wait;
when every engine of the block waits, nothing will ever move: a deadlock.
"""
from __future__ import annotations

from collections import deque
from functools import lru_cache
from itertools import count

from .errors import NpusimError
from .lower import lower
from .parse import Module

MOST_BLOCKS = 65535  # triton-ascend docs/en/programming_guide.md


class Mailbox:
    """Cross-core flags of one block: what was set and not yet waited for, per flag and per setter or receiver.

    A set of the cube reaches each vector core; a wait of the cube needs a set of every vector core.
    """

    def __init__(self, vectors: int) -> None:
        self.vectors = vectors
        self.to_cube: dict[int, list[deque]] = {}
        self.to_vector: dict[int, list[deque]] = {}

    def post(self, core: int, flag: int, value) -> None:
        """core 0 is the cube, 1 and 2 the vector cores; value: what the waiter gets (a time, a clock)."""
        table = self.to_vector if core == 0 else self.to_cube
        boxes = table.setdefault(flag, [deque() for _ in range(self.vectors)])
        for index, box in enumerate(boxes):
            if core in (0, index + 1):
                box.append(value)

    def take(self, core: int, flag: int) -> list | None:
        """The values a wait consumes, or None when it has to wait."""
        table = self.to_cube if core == 0 else self.to_vector
        boxes = table.get(flag)
        wanted = boxes if core == 0 else boxes and [boxes[core - 1]]
        if not wanted or not all(wanted):
            return None
        return [box.popleft() for box in wanted]

    def left(self) -> list[tuple[str, int, int]]:
        """(receiver, flag, count) of sets that nobody waited for."""
        out = [("cube", flag, max(map(len, boxes))) for flag, boxes in self.to_cube.items()]
        out += [(f"vector{i}", flag, len(box)) for flag, boxes in self.to_vector.items() for i, box in enumerate(boxes)]
        return [entry for entry in out if entry[2]]


@lru_cache(maxsize=64)
def _programs(text: str, names: tuple[str, ...], holder) -> tuple:
    return tuple(lower(holder.module, holder.module.functions[name]) for name in names)


class _Holder:
    """Lets the cache key be the module's text instead of the module."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other) -> bool:
        return isinstance(other, _Holder)


def programs(module: Module) -> list[tuple[str, object]]:
    """(core kind, program) for each device function: "AIC" and "AIV"."""
    kernels = module.kernels()
    if not kernels:
        raise NpusimError("the module has no device function (AIC or AIV)")
    names = tuple(k.name for k in kernels)
    return list(zip([k.core for k in kernels], _programs(module.text, names, _Holder(module)), strict=True))


def layout(module: Module) -> list[tuple[int, str, int]]:
    """Engines of one block as (core number, core kind, sub-block index); core 0 is the cube, 1 and 2 the vectors."""
    kinds = {core for core, _ in programs(module)}
    if kinds == {"AIC", "AIV"}:
        return [(0, "AIC", 0), (1, "AIV", 0), (2, "AIV", 1)]
    return [(0, "AIC", 0)] if kinds == {"AIC"} else [(1, "AIV", 0)]


def run_block(module: Module, engines: dict[int, object], args: tuple, block: int) -> list[int]:
    """Run one block to its end; returns the core numbers that are stuck (empty when all finished)."""
    by_kind = dict(programs(module))
    active = [(core, engines[core], by_kind[kind](engines[core], args, block, sub))
              for core, kind, sub in layout(module)]
    while active:
        moved, still = False, []
        for core, engine, program in active:
            before = engine.steps
            done = next(program, _DONE)
            if done is _DONE:
                moved = True
                engine.finish()
            else:
                still.append((core, engine, program))
                moved = moved or engine.steps != before
        if not moved:
            return [core for core, _, _ in still]
        active = still
    return []


_DONE = object()


def blocks_of(grid) -> tuple[int, tuple[int, int, int]]:
    """(number of blocks, grid padded to three axes)."""
    axes = (grid,) if isinstance(grid, int) else tuple(grid)
    axes = (*axes, 1, 1)[:3]
    total = axes[0] * axes[1] * axes[2]
    if not 1 <= total <= MOST_BLOCKS:
        raise NpusimError(f"grid {grid!r} has {total} blocks; a launch takes 1 to {MOST_BLOCKS}")
    return total, axes


def check_arguments(module: Module, args) -> None:
    """The number and kind of the launch's arguments against the device function's visible parameters."""
    params = module.kernels()[0].visible
    if len(params) != len(args):
        raise NpusimError(f"{module.kernels()[0].name} takes {len(params)} run-time arguments, got {len(args)}")
    for index, (_, kind, _), value in zip(count(), params, args, strict=False):
        scalar = isinstance(value, (int, float))
        if scalar != isinstance(kind, str):
            raise NpusimError(f"argument {index} of {module.kernels()[0].name} is a "
                              f"{'scalar' if isinstance(kind, str) else 'buffer'}, got {type(value).__name__}")
