"""Device time of a call on a GPU or an NPU, as a median with its spread. What is called is in bench_rivals.py.

Both clocks rotate over several input sets, larger together than the last-level cache, so that nothing stays warm.
"""
from __future__ import annotations

import csv
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

COLD_BYTES = 256 * 2**20  # more than the cache of any device here (60 MB on an H200, 192 MB on a 910B)
FLUSH_BYTES = 2**31  # written between two timed calls: long enough that the host is ahead of the device


@dataclass(frozen=True)
class Times:
    """Microseconds a call: median, fastest and slowest sample."""

    median_us: float
    min_us: float
    max_us: float

    @classmethod
    def of(cls, samples_us: Sequence[float]) -> Times:
        if not samples_us:
            raise RuntimeError("no sample was taken; the profiler recorded no kernel of the timed calls")
        return cls(statistics.median(samples_us), min(samples_us), max(samples_us))


def sets_needed(bytes_per_call: int) -> int:
    """Input sets whose bytes exceed the cache; at least 3, at most 40 to bound the set-up."""
    return max(3, min(40, -(-COLD_BYTES // max(1, bytes_per_call))))


def cuda_graph(calls: Sequence[Callable[[], object]], samples: int = 30) -> Times:
    """Kernels only: one graph of all calls in turn, replayed; a sample is one replay divided by the calls."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:2]:  # compile and tune outside the capture
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return _events(graph.replay, samples, len(calls), flush=None)


def cuda_events(calls: Sequence[Callable[[], object]], samples: int = 50) -> Times:
    """One call between two events, on a cold cache, while the host is ahead: kernels and the gaps between them."""
    rotating = itertools.cycle(calls)
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    return _events(lambda: next(rotating)(), samples, 1, flush)


def cuda_host(calls: Sequence[Callable[[], object]], samples: int = 10) -> Times:
    """What the host spends on a call, the device not waited for; a sample is the mean over 40 calls."""
    times = []
    for _ in range(samples):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for call in itertools.islice(itertools.cycle(calls), 40):
            call()
        times.append((time.perf_counter() - start) / 40 * 1e6)
    torch.cuda.synchronize()
    return Times.of(times)


def _events(step: Callable[[], object], samples: int, calls_a_step: int, flush: torch.Tensor | None) -> Times:
    for _ in range(3):
        step()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(samples)]
    for start, end in pairs:
        if flush is not None:
            flush.zero_()
        start.record()
        step()
        end.record()
    torch.cuda.synchronize()
    return Times.of([start.elapsed_time(end) * 1e3 / calls_a_step for start, end in pairs])


def npu_profiler(calls: Sequence[Callable[[], object]], samples: int = 20) -> Times:
    """Kernel durations that torch_npu's profiler reports, summed per call; one profiler step per call."""
    import torch_npu

    profiler = torch_npu.profiler
    for call in calls[:2]:
        call()
    torch.npu.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        with profiler.profile(
            activities=[profiler.ProfilerActivity.NPU],
            schedule=profiler.schedule(wait=0, warmup=1, active=samples, repeat=1),
            on_trace_ready=profiler.tensorboard_trace_handler(folder),
            experimental_config=profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1),
        ) as trace:
            for i in range(samples + 1):
                calls[i % len(calls)]()
                torch.npu.synchronize()
                trace.step()
        tables = list(Path(folder).glob("**/kernel_details.csv"))
        if len(tables) != 1:
            raise RuntimeError(f"the profiler wrote {len(tables)} files named kernel_details.csv; one was expected")
        return Times.of(step_durations(tables[0]))


def step_durations(table: Path) -> list[float]:
    """Microseconds per profiler step in a kernel_details.csv: the sum of its kernels."""
    sums: dict[str, float] = {}
    with table.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            missing = {"Step Id", "Duration(us)"} - row.keys()
            if missing:
                raise RuntimeError(f"{table.name} has no column {', '.join(sorted(missing))}: {sorted(row)}")
            sums[row["Step Id"]] = sums.get(row["Step Id"], 0.0) + float(row["Duration(us)"])
    return list(sums.values())
