"""Estimates the device time of a launch: an event simulation of the compiled program on the numbers of machine.py.

The program of lower.py runs with its scalars for real; every instruction enters the queue of its pipe, pipes issue in
order, flags and cross-core signals order them. A transfer takes its pipe for its bytes only, its latency overlaps with
what follows; a vector instruction's latency is paid where a barrier or a flag waits for it.

What is simulated: whole blocks, every iteration, no extrapolation inside a block. Of a grid that fits the cores,
`samples` blocks (first, last, between) run and the slowest counts; a longer grid runs in waves of the sampled blocks'
mean. Blocks differ only in their block number, and their control flow reads no data except the arrays given.
Contention is a floor: bytes through HBM (each buffer once) and through L2 (all) at the chip's rates.
"""
from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path

import numpy as np

from .cost import CostModel
from .engine import Mailbox, blocks_of, check_arguments, layout, run_block
from .errors import NpusimError
from .machine import Machine, machine
from .mlir_text import BITS
from .parse import Module, parse_module
from .timeengine import Gm, TimeEngine
from .views import CORE_NAMES, FIX, MTE2, PIPES, M, Meta, V, View


@dataclass
class Timing:
    """An estimate of one launch.

    us: device time; launch_us: host gap of a launch, not in `us`; pipes: busy share per core and pipe of the slowest
    sampled block; waits: µs that its engines stood still, by what for; gm_bytes: of the whole launch; critical: what
    bounds it; per_iteration: hand-offs and instructions per iteration of the outermost loop; trace: Chrome events.
    """

    us: float
    launch_us: float
    block_us: float
    waves: int
    pipes: dict[str, float]
    waits: dict[str, float]
    gm_bytes: dict[str, float]
    floor_us: dict[str, float]
    critical: str
    per_iteration: dict[str, float]
    kind: str = "estimated"
    trace: list[dict] = field(default_factory=list, repr=False)

    def as_dict(self) -> dict:
        """Everything but the trace, ready for JSON."""
        return {k: v for k, v in asdict(self).items() if k != "trace"}


def estimate(module: Module, grid, args, target: str = "Ascend910B2", trace: bool = False,
             samples: int | None = None) -> Timing:
    """Estimated device time of one launch.

    grid: programs per axis; args: run-time arguments in order: numbers, `Meta(numel)` for buffers, 1-D integer arrays
    for buffers that steer control flow; samples: how many blocks to simulate (default 3, or 6 where arrays are given).
    Raises UnsupportedError for an op or target that is not modelled, NpusimError for arguments that do not fit.
    """
    check_arguments(module, args)
    chip = machine(target)
    blocks, axes = blocks_of(grid)
    buffers, values = _buffers(module, args, blocks, axes)
    if samples is None:
        samples = 6 if any(b.data is not None for b in buffers) else 3
    picked = sorted({round(i * (blocks - 1) / max(1, samples - 1)) for i in range(samples)} | {0})
    engines = {block: _simulate(module, chip, values, block, blocks, trace) for block in picked}
    return _collect(module, chip, buffers, engines, blocks)


def memory_kernel_us(read: float, written: float, target: str = "Ascend910B2") -> float:
    """Estimated device time of a kernel that only moves bytes through HBM: a zero fill, a copy, a transpose."""
    chip = machine(target)
    return (read + written) / (chip.hbm_tbytes.value * 1e6) + chip.kernel_start_us.value + chip.block_start_us.value


def _buffers(module: Module, args, blocks: int, axes) -> tuple[list[Gm], tuple]:
    func, visible, buffers, values = module.kernels()[0], iter(args), [], []
    hidden = len(func.params) - len(args) - 3
    for index, (name, kind, attrs) in enumerate(func.params):
        if "hacc.arg_type" in attrs:
            numel = module.workspace_bytes * blocks if "workspace" in attrs else 0
            value = None
        elif index >= len(func.params) - 3:
            values.append(axes[index - len(func.params)])
            continue
        else:
            value = next(visible)
            numel = value.numel if isinstance(value, Meta) else getattr(value, "size", 0)
        if isinstance(kind, str):
            values.append(0 if value is None else value)
            continue
        label = "workspace" if "workspace" in attrs else name if value is None else f"argument {index - hidden}"
        data = value.reshape(-1) if isinstance(value, np.ndarray) and value.dtype.kind in "iu" else None
        data = None if kind.dtype in ("bf16", "f16", "f32") else data
        buffers.append(Gm(label, numel, BITS[kind.dtype] / 8, data))
        values.append(View(buffers[-1], 0, numel * BITS[kind.dtype], 0, (numel,), (1,), BITS[kind.dtype]))
    return buffers, tuple(values)


def _simulate(module, chip: Machine, values, block: int, blocks: int, trace: bool) -> dict[int, TimeEngine]:
    cores = layout(module)
    mail, model = Mailbox(sum(kind == "AIV" for _, kind, _ in cores)), CostModel(chip)
    engines = {core: TimeEngine(core, model, mail, blocks, trace) for core, _, _ in cores}
    stuck = run_block(module, engines, values, block)
    if stuck:
        raise NpusimError(f"block {block} never ends: {', '.join(CORE_NAMES[c] for c in stuck)} wait for a cross-core "
                          "flag that nobody sets; run npusim.execute on this program")
    return engines


def _collect(module: Module, chip: Machine, buffers, engines, blocks: int) -> Timing:
    hertz = chip.clock_ghz.value * 1e3  # cycles a microsecond
    spans = {block: max(e.now for e in cores.values()) / hertz for block, cores in engines.items()}
    slowest = max(spans, key=spans.get)
    slots = int(chip.vector_cores.value if module.core_type == "AIV" else chip.cube_cores.value)
    waves = ceil(blocks / slots)
    mean = sum(spans.values()) / len(spans)
    body = spans[slowest] if waves == 1 else waves * mean
    scale = blocks / len(engines)
    gm = {"read": 0.0, "written": 0.0, "workspace": 0.0, "hbm": 0.0}
    for b in buffers:
        read, written = b.read * scale, b.written * scale
        if b.name == "workspace":
            gm["workspace"] += read + written
        else:
            gm["read"] += read
            gm["written"] += written
            gm["hbm"] += min(read, b.numel * b.size) + min(written, b.numel * b.size)
    hbm = chip.hbm_tbytes.value * 1e6  # bytes a microsecond
    floors = {"hbm": gm["hbm"] / hbm,
              "l2": (gm["read"] + gm["written"] + gm["workspace"]) / (chip.l2_tbytes.value * 1e6)}
    start = chip.kernel_start_us.value + waves * chip.block_start_us.value
    limit = _critical(engines[slowest], spans[slowest], body, floors, hertz)
    body = max(body, *floors.values())
    return Timing(us=start + body, launch_us=chip.launch_us.value, block_us=spans[slowest], waves=waves,
                  pipes=_shares(engines[slowest], spans[slowest] * hertz),
                  waits={f"{e.name} {why}": cycles / hertz for e in engines[slowest].values()
                         for why, cycles in sorted(e.waits.items(), key=lambda w: -w[1]) if cycles >= 1},
                  gm_bytes=gm, floor_us=floors, critical=limit,
                  per_iteration=_per_iteration(engines[slowest]), trace=_trace(engines[slowest], hertz))


def _shares(cores, cycles: float) -> dict[str, float]:
    return {f"{e.name}.{PIPES[p]}": e.busy[p] / cycles for e in cores.values() for p in range(1, 7) if e.counts[p]}


def _critical(cores, span: float, body: float, floors, hertz: float) -> str:
    name, floor = max(floors.items(), key=lambda item: item[1])
    if floor >= body:
        return f"{name.upper()} bandwidth"
    shares = _shares(cores, span * hertz)
    busiest = max(shares, key=shares.get, default="")
    waits = {f"{e.name} {w}": c / hertz for e in cores.values() for w, c in e.waits.items()}
    longest = max(waits, key=waits.get, default="")
    if not busiest:
        return "scalar work"
    if shares[busiest] >= 0.5 or not longest:
        return f"{busiest} busy {shares[busiest]:.0%}"
    return f"no pipe above {shares[busiest]:.0%}; longest wait: {longest}"


def _per_iteration(cores) -> dict[str, float]:
    iterations = max((e.iterations for e in cores.values()), default=0)
    vectors = [e for e in cores.values() if e.core > 0]
    total = {"handoffs": sum(e.handoffs for e in cores.values() if e.core < 2),
             "vector": max((e.counts[V] for e in vectors), default=0),
             "cube": sum(e.counts[M] for e in cores.values()),
             "loads": max(e.counts[MTE2] for e in cores.values()),
             "fixpipes": sum(e.counts[FIX] for e in cores.values())}
    return {"iterations": iterations, **{k: v / max(1, iterations) for k, v in total.items()}}


def _trace(cores, hertz: float) -> list[dict]:
    events = []
    for e in cores.values():
        for pipe, start, busy, after, name, line in e.events or ():
            events.append({"name": name, "ph": "X", "ts": start / hertz, "dur": max(busy, 1) / hertz, "pid": e.name,
                           "tid": PIPES[pipe], "args": {"line": line, "cycles": busy, "latency": after}})
    return events


def main(argv: list[str] | None = None) -> int:
    """`python -m npusim.time FILE.mlir --grid 24 --arg meta:1048576 --arg 8192 … [--trace t.json]`."""
    parser = argparse.ArgumentParser(prog="python -m npusim.time", description="Estimate one compiled kernel.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--grid", required=True, help="programs per axis, for example 24 or 128,8")
    parser.add_argument("--arg", action="append", default=[], help="in order: a number, or meta:NUMEL for a buffer")
    parser.add_argument("--target", default="Ascend910B2")
    parser.add_argument("--trace", type=Path, help="write Chrome-trace JSON of the slowest sampled block")
    options = parser.parse_args(argv)
    args = [Meta(a[5:]) if a.startswith("meta:") else float(a) if "." in a else int(a) for a in options.arg]
    try:
        grid = tuple(int(g) for g in options.grid.split(","))
        timing = estimate(parse_module(options.file.read_text()), grid, args, options.target, bool(options.trace))
    except (NpusimError, OSError) as error:
        print(f"npusim: {error}", file=sys.stderr)
        return 1
    print(json.dumps(timing.as_dict(), indent=1))
    if options.trace:
        options.trace.write_text(json.dumps({"traceEvents": timing.trace, "displayTimeUnit": "ns"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
