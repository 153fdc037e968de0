"""The table and the plot over the standard shapes, and the check against published device times.

Everything here is arranged from estimates of timing.py; the published points are data with their source.
"""
from __future__ import annotations

import csv
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from . import plans
from .compile import compile_launch
from .errors import NpusimError
from .machine import machine
from .plans import STANDARD_SHAPES, Shape
from .timing import estimate_plan

# Device times of MindSpeed's two-call chain on Atlas A2 (910B), bf16, µs, summed over its kernels by msprof.
PUBLISHED_SOURCE = "public practice note of the first fused version (msprof device time, 910B A2)"
PUBLISHED_US = ((Shape(1, 8192, 2, 2, 128), 197.0), (Shape(1, 16384, 8, 8, 128), 714.0))
TOLERANCE = 0.25


def build(dtype: str, target: str, mindspeed_src: str | None, workers: int, options: dict,
          shapes: tuple[Shape, ...] = STANDARD_SHAPES, fused: str = "fused") -> dict:
    """A row per shape, and the calibration when a checkout is given.

    fused: the op, or module with a plan, that the fused columns show; options: compiler options over its own.
    """
    columns = {"fused": (fused, options), "unfused": ("unfused", {})} | ({"upstream": ("upstream", {})} if mindspeed_src
                                                                         else {})
    keys = [(column, shape, dtype) for shape in shapes for column in columns]
    if mindspeed_src:
        keys += [("upstream", shape, "bf16") for shape, _ in PUBLISHED_US]
    jobs = [(columns[column][0], shape, kind, target, mindspeed_src, columns[column][1])
            for column, shape, kind in keys]
    for op, chosen in columns.values():  # once here, so that the workers find what does not depend on the shape
        _compiled(op, shapes[0], dtype, target, mindspeed_src, chosen)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        totals = list(pool.map(total_us, jobs))
    found = dict(zip(keys, totals, strict=True))
    hbm = machine(target).hbm_tbytes.value * 1e12
    rows = [_row(shape, {column: found[column, shape, dtype] for column in columns}, dtype, hbm) for shape in shapes]
    calibration = [{"shape": str(shape), "published_us": published, "estimated_us": found["upstream", shape, "bf16"],
                    "ratio": found["upstream", shape, "bf16"] / published, "source": PUBLISHED_SOURCE}
                   for shape, published in PUBLISHED_US] if mindspeed_src else []
    return {"kind": "estimated", "target": target, "dtype": dtype, "hbm_bytes_per_s": hbm, "rows": rows,
            "calibration": calibration}


def _compiled(op, shape, dtype, target, mindspeed_src, options):
    plan = plans.make(op, shape, dtype, target=target, mindspeed_src=mindspeed_src)
    return plan, [compile_launch(launch, target, options) for launch in plan.launches]


def total_us(job: tuple) -> float:
    """Estimated device time of (op, shape, dtype, target, mindspeed_src, options), compiled first."""
    op, shape, dtype, target, mindspeed_src, options = job
    plan, compiled = _compiled(op, shape, dtype, target, mindspeed_src, options)
    return estimate_plan(plan, compiled, target).total_us


def _row(shape: Shape, total_us: dict[str, float], dtype: str, hbm_bytes_per_s: float) -> dict:
    floor_us = shape.hbm_bytes(plans.DTYPES[dtype]) / hbm_bytes_per_s * 1e6
    row = {"shape": str(shape), "chunk_heads": shape.chunk_heads, "hbm_floor_us": floor_us}
    for op, us in total_us.items():
        row[f"{op}_us"] = us
        row[f"{op}_ns_per_chunk_head"] = us * 1e3 / shape.chunk_heads
        row[f"{op}_share_of_floor"] = floor_us / us
    row["ratio"] = total_us["unfused"] / total_us["fused"]
    if "upstream" in total_us:
        row["upstream_ratio"] = total_us["upstream"] / total_us["fused"]
    return row


def markdown(report: dict) -> str:
    """The table as markdown, with what its columns mean below."""
    upstream = "upstream_us" in report["rows"][0]
    titles = ["B,T,H,HV,K", "fused µs", "unfused µs", "unfused/fused", "fused ns/(chunk, head)",
              "unfused ns/(chunk, head)", "HBM floor µs", "fused: floor share"]
    keys = ["shape", "fused_us", "unfused_us", "ratio", "fused_ns_per_chunk_head", "unfused_ns_per_chunk_head",
            "hbm_floor_us", "fused_share_of_floor"]
    if upstream:
        titles += ["MindSpeed µs", "MindSpeed/fused"]
        keys += ["upstream_us", "upstream_ratio"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join(_cell(key, row[key]) for key in keys) + " |" for row in report["rows"]]
    lines += ["", f"Estimated by npusim for {report['target']}, {report['dtype']}; device time of all kernels "
              "(torch's fills and copies included), without launch gaps. HBM floor: k, g, beta and the result once "
              f"each at {report['hbm_bytes_per_s'] / 1e12:.2f} TB/s."]
    for point in report["calibration"]:
        lines.append(f"Calibration at {point['shape']}: MindSpeed's chain estimated {point['estimated_us']:.0f} µs, "
                     f"published {point['published_us']:.0f} µs ({point['source']}), ratio {point['ratio']:.2f}.")
    return "\n".join(lines)


def _cell(key: str, value) -> str:
    if key == "shape":
        return value.replace(",", ", ")
    if key.endswith("share_of_floor"):
        return f"{value:.0%}"
    return f"{value:.2f}" if key.endswith("ratio") else f"{value:.1f}"


def write(report: dict, folder: Path) -> list[Path]:
    """report.json, report.csv, report.md and report.png in `folder`."""
    files = [folder / f"report.{kind}" for kind in ("json", "csv", "md", "png")]
    files[0].write_text(json.dumps(report, indent=2) + "\n")
    with files[1].open("w", newline="") as file:
        table = csv.DictWriter(file, list(report["rows"][0]))
        table.writeheader()
        table.writerows(report["rows"])
    files[2].write_text(markdown(report) + "\n")
    plot(report, files[3])
    return files


def plot(report: dict, path: Path) -> None:
    """Bars of ns per (chunk, head) for each shape, with the memory floor as a line."""
    try:
        import matplotlib
    except ImportError as error:
        raise NpusimError("the plot needs the package matplotlib (pip install matplotlib)") from error

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = report["rows"]
    ops = [op for op in ("upstream", "unfused", "fused") if f"{op}_us" in rows[0]]
    labels = {"upstream": "MindSpeed's chain", "unfused": "plugin, two calls", "fused": "plugin, fused"}
    figure, axes = pyplot.subplots(figsize=(11, 4.5), layout="constrained")
    width = 0.8 / len(ops)
    for index, op in enumerate(ops):
        places = [place + (index - (len(ops) - 1) / 2) * width for place in range(len(rows))]
        axes.bar(places, [row[f"{op}_ns_per_chunk_head"] for row in rows], width, label=labels[op])
    floor = [row["hbm_floor_us"] * 1e3 / row["chunk_heads"] for row in rows]
    places = range(len(rows))
    axes.hlines(floor, [place - 0.45 for place in places], [place + 0.45 for place in places], "k", label="HBM floor")
    axes.set_yscale("log")
    axes.set_ylabel("ns per (chunk, head)")
    axes.set_xticks(range(len(rows)), [row["shape"] for row in rows], rotation=30, ha="right")
    axes.set_xlabel("B,T,H,HV,K")
    axes.set_title(f"Estimated (npusim), {report['target']}, {report['dtype']}")
    axes.legend()
    axes.grid(axis="y", which="both", alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
