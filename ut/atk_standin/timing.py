"""How long one call takes: CUDA events, the torch_npu profiler, or npusim's estimate where there is no device.

Microseconds per call everywhere. Device time leaves out the host: on CUDA the calls are queued behind a sleeping
kernel, so that the device never waits for a launch; on NPU the kernels' own durations are summed, as ATK does.
"""
from __future__ import annotations

import csv
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

Calls = Sequence[Callable[[], object]]  # the same call on different copies of its inputs
QUEUED_CALLS = 200
BATCH_US = 2.0e4
ROUNDS = 5


def _cycle(calls: Calls, number: int) -> None:
    for i in range(number):
        calls[i % len(calls)]()


def end_to_end_us(calls: Calls, synchronize: Callable[[], None], number: int = 30) -> float:
    """Wall time of one call that starts on an idle device and is waited for; median."""
    times = []
    for i in range(number):
        synchronize()
        start = time.perf_counter()
        calls[i % len(calls)]()
        synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def _queued_us(calls: Calls, number: int, sleep_cycles: int) -> float | None:
    """Device time of one call, or None when the device ran dry while the host was still queueing."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(sleep_cycles)
    start.record()
    _cycle(calls, number)
    stop.record()
    starved = start.query()
    torch.cuda.synchronize()
    return None if starved else start.elapsed_time(stop) * 1e3 / number


def cuda_device_us(calls: Calls) -> float:
    """Median over rounds of queued calls; needs warm (compiled) calls.

    The launch queue holds about a thousand kernels. When it is full the host waits until the sleep is over, which looks
    like a host that is too slow: so a longer sleep comes with fewer calls.
    """
    number, most, cycles, times = 10, QUEUED_CALLS, 20_000_000, []
    while len(times) < ROUNDS + 1:
        us = _queued_us(calls, number, cycles)
        if us is None:
            if cycles > 4_000_000_000:
                raise RuntimeError("the device ran dry in every attempt: the host cannot queue calls fast enough")
            cycles *= 2
            number = most = max(10, number // 2)
            continue
        times.append(us)
        most = QUEUED_CALLS if len(times) == 1 else most  # the first round's ten calls fill no queue
        number = int(max(10, min(most, BATCH_US / us)))
    return statistics.median(times[1:])  # the first round chose the number of calls


def npu_device_us(calls: Calls, number: int = 20) -> float:
    """Sum of all kernel durations over the number of calls, from the profiler's op_statistic table."""
    import torch_npu

    with tempfile.TemporaryDirectory() as folder:
        profiler = torch_npu.profiler
        config = profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1)
        with profiler.profile(
            activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
            on_trace_ready=profiler.tensorboard_trace_handler(folder),
            experimental_config=config,
        ):
            _cycle(calls, number)
            torch.npu.synchronize()
        return op_statistic_us(Path(folder)) / number


def op_statistic_us(folder: Path) -> float:
    """Total Time(us) over all rows of the one op_statistic*.csv below `folder`; a missing or empty one raises."""
    found = sorted(folder.rglob("op_statistic*.csv"))
    if len(found) != 1:
        raise RuntimeError(f"expected one op_statistic*.csv from the profiler, found {len(found)}")
    with found[0].open(newline="", encoding="utf-8-sig") as file:
        total = sum(float(row["Total Time(us)"]) for row in csv.DictReader(file))
    if total <= 0:
        raise RuntimeError(f"{found[0].name} holds no device time")
    return total


def npusim_us(op: str, shape: Sequence[int], dtype: str, cu_seqlens: str, target: str) -> float:
    """npusim's estimate for op `fused` or `unfused`; shape (B, T, H, HV, K)."""
    command = [sys.executable, "-m", "npusim", "time", "--op", op, "--shape", ",".join(map(str, shape))]
    command += ["--dtype", dtype, "--target", target, "--json"]
    if cu_seqlens != "none":
        command += ["--varlen", cu_seqlens]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    if done.returncode:
        raise RuntimeError(f"npusim refused: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    if answer.get("kind") != "estimated" or not answer["total_us"] > 0:
        raise RuntimeError(f"npusim gave no estimate: {answer}")
    return float(answer["total_us"])
