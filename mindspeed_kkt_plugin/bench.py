"""`python -m mindspeed_kkt_plugin.bench --device cuda|npu`: times the fused operator on a device, side by side.

The command line, the table and the plot. The clocks are in bench_clock.py, what is timed in bench_rivals.py.
"""
from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import torch

from .bench_clock import Times, cuda_events, cuda_graph, cuda_host, npu_profiler, sets_needed
from .bench_rivals import AGAINST, CHUNK, fused

# B, T, HV, K with H = HV: the shapes that the project reports on every device.
STANDARD_SHAPES = (
    (1, 2048, 4, 128), (1, 4096, 4, 128), (1, 4096, 8, 128), (1, 8192, 2, 128), (1, 8192, 4, 128), (1, 8192, 8, 128),
    (2, 4096, 16, 128), (4, 2048, 16, 128), (1, 8192, 16, 128), (1, 16384, 8, 128), (1, 4096, 32, 128),
    (1, 8192, 32, 128), (1, 16384, 32, 128),
)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
CLOCKS = {"cuda": {"graph": cuda_graph, "events": cuda_events, "host": cuda_host}, "npu": {"profiler": npu_profiler}}


def inputs(shape: tuple[int, int, int, int], dtype: torch.dtype, device: str, seed: int):
    """Unit keys, gates and betas as a layer makes them: (k, g, beta) with H = HV."""
    B, T, H, K = shape
    gen = torch.Generator().manual_seed(seed)
    k = torch.nn.functional.normalize(torch.randn(B, T, H, K, generator=gen), dim=-1).to(dtype)
    step = -0.1 * torch.nn.functional.softplus(torch.randn(B, T, H, generator=gen))
    g = torch.cat([part.cumsum(1) for part in step.split(CHUNK, dim=1)], dim=1)
    return k.to(device), g.to(device), torch.sigmoid(torch.randn(B, T, H, generator=gen)).to(device)


def traffic(shape: tuple[int, int, int, int], dtype: torch.dtype) -> int:
    """Bytes that a fused call must move: k, g and beta once, the result once."""
    B, T, H, K = shape
    return B * T * H * ((K + CHUNK) * dtype.itemsize + 8)


def rotation(shape, dtype: torch.dtype, device: str) -> list:
    """Input sets that together exceed the cache. Drawn once, then rolled along the tokens by whole chunks."""
    first = inputs(shape, dtype, device, seed=0)
    copies = range(sets_needed(traffic(shape, dtype)))
    return [tuple(x.roll(CHUNK * i, dims=1).contiguous() for x in first) for i in copies]


def measure(shape, dtype: torch.dtype, device: str, makers: dict) -> dict[str, dict[str, Times]]:
    """Clock → name → times, all on the same inputs in one process."""
    sets = rotation(shape, dtype, device)
    calls = {name: [make(*one) for one in sets] for name, make in makers.items()}
    return {clock: {name: read(group) for name, group in calls.items()} for clock, read in CLOCKS[device].items()}


def rows_of(results: dict, clock: str) -> list[list[str]]:
    """The table of one clock: shape, then per name median (fastest-slowest) and how many times the fused time."""
    rows = []
    for shape, clocks in results.items():
        times = clocks[clock]
        ours = times["fused"].median_us
        cells = [f"{t.median_us:.1f} ({t.min_us:.1f}-{t.max_us:.1f})" +
                 ("" if name == "fused" else f"  {t.median_us / ours:.2f}x") for name, t in times.items()]
        rows.append(["x".join(map(str, shape)), *cells])
    return rows


def geometric_means(results: dict, clock: str) -> dict[str, float]:
    """Name → geometric mean over the shapes of (its time over the fused time)."""
    names = [name for name in next(iter(results.values()))[clock] if name != "fused"]
    logs = {name: [math.log(c[clock][name].median_us / c[clock]["fused"].median_us) for c in results.values()]
            for name in names}
    return {name: math.exp(sum(values) / len(values)) for name, values in logs.items()}


def report(results: dict, device: str, dtype: str) -> dict:
    """Everything as plain data, for --json."""
    return {
        "kind": "measured",
        "device": torch.cuda.get_device_name() if device == "cuda" else torch.npu.get_device_name(),
        "torch": torch.__version__,
        "dtype": dtype,
        "unit": "us",
        "shapes": [{"shape": list(shape),
                    "times": {clock: {name: vars(t) for name, t in times.items()} for clock, times in clocks.items()}}
                   for shape, clocks in results.items()],
        "geometric_mean": {clock: geometric_means(results, clock) for clock in CLOCKS[device]},
    }


def plot(results: dict, clock: str, path: Path, title: str) -> None:
    """Write a PNG: time per shape and name, logarithmic, with the spread as error bars."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(11, 5), layout="constrained")
    labels = ["x".join(map(str, shape)) for shape in results]
    for name, marker in zip(next(iter(results.values()))[clock], "osv^Dx", strict=False):
        times = [clocks[clock][name] for clocks in results.values()]
        middle = [t.median_us for t in times]
        spread = [[t.median_us - t.min_us for t in times], [t.max_us - t.median_us for t in times]]
        axes.errorbar(range(len(labels)), middle, yerr=spread, fmt=marker, capsize=3, label=name)
    axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("µs, median; bars from fastest to slowest sample")
    axes.set_title(title, fontsize=10)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def show(results: dict, clock: str, title: str) -> None:
    header = ["B x T x H x K", *next(iter(results.values()))[clock]]
    table = [header, *rows_of(results, clock)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print(f"\n{title}: µs, median (fastest-slowest), then times the fused operator's")
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for name, mean in geometric_means(results, clock).items():
        print(f"geometric mean, {name} over fused: {mean:.2f}x")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mindspeed_kkt_plugin.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=tuple(CLOCKS), required=True)
    parser.add_argument("--against", choices=tuple(AGAINST), action="append", default=[], help="may be repeated")
    parser.add_argument("--shape", action="append", metavar="B,T,H,K", help="instead of the standard shapes")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    parser.add_argument("--plot", type=Path, metavar="PNG")
    options = parser.parse_args(arguments)
    try:
        options.shapes = [tuple(int(x) for x in s.split(",")) for s in options.shape or []] or list(STANDARD_SHAPES)
    except ValueError:
        parser.error(f"--shape is {options.shape}; each must be four integers, for example 1,8192,8,128")
    if any(len(shape) != 4 or min(shape) < 1 for shape in options.shapes):
        parser.error(f"--shape is {options.shape}; each must be four positive integers B,T,H,K")
    return options


def available(device: str) -> bool:
    if device == "npu":
        try:
            import torch_npu  # noqa: F401  (registers torch.npu)
        except ImportError:
            return False
    return getattr(torch, device).is_available()


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if not available(options.device):
        sys.exit(f"--device {options.device}: no such device can be used here")
    makers = {"fused": fused} | {name: make for rival in options.against for name, make in AGAINST[rival].items()}
    results = {shape: measure(shape, DTYPES[options.dtype], options.device, makers) for shape in options.shapes}
    summary = report(results, options.device, options.dtype)
    if options.json:
        print(json.dumps(summary))
    else:
        for clock in CLOCKS[options.device]:
            show(results, clock, f"{summary['device']}, {options.dtype}, {clock}")
    if options.plot:
        clock = next(iter(CLOCKS[options.device]))
        plot(results, clock, options.plot, f"{summary['device']}, {options.dtype}, measured ({clock})")


if __name__ == "__main__":
    main()
