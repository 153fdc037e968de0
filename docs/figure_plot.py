"""The result plot of the README: time per (chunk, head), measured and estimated and published side by side."""
from __future__ import annotations

from pathlib import Path

from . import figure_data as data

CHUNK = 64


def draw(folder: Path) -> Path | None:
    """result.png, or nothing while docs/data has neither estimates nor measurements."""
    estimated, measured = data.estimates(), data.h200_times()
    if not estimated and not measured:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shapes = list(estimated or measured)
    figure, axes = pyplot.subplots(figsize=(11, 4), layout="constrained")
    for label, marker, times in _series(estimated, measured):
        known = [(i, times[shape] * 1e3 / _chunk_heads(shape)) for i, shape in enumerate(shapes) if shape in times]
        if known:
            axes.plot(*zip(*known, strict=True), marker, label=label, markersize=9 if marker[0] == "r" else 5)
    axes.set_yscale("log")
    axes.set_ylabel("ns per (chunk, head)")
    axes.set_xlabel("B, T, H, K")
    labels = [",".join(map(str, shape)) for shape in shapes]
    axes.set_xticks(range(len(shapes)), labels, rotation=30, ha="right", fontsize=8)
    axes.grid(True, which="both", axis="y", alpha=0.3)
    axes.set_title("estimated = compiled for the NPU and simulated; nothing here was measured on an NPU", fontsize=9)
    figure.legend(fontsize=8, loc="outside right upper")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "result.png", dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    return folder / "result.png"


def _series(estimated: dict, measured: dict):
    def column(key):
        return {shape: row[key] for shape, row in estimated.items() if key in row}

    yield "910B2 fused (estimated)", "o-", column("fused_us")
    yield "910B2 two calls, ours (estimated)", "s--", column("unfused_us")
    yield "910B2 two calls, MindSpeed-MM (estimated)", "d--", column("upstream_us")
    yield "910B2 memory floor", "k:", column("hbm_floor_us")
    for op, marker in (("two-call chain", "rX"), ("first fused version", "r*")):
        yield f"910B {op} (published)", marker, {row["shape"]: row["us"] for row in data.published() if row["op"] == op}
    names = list(next(iter(measured.values()))) if measured else []
    for name, marker in zip(names, ("o-", "^--", "v--", "<--"), strict=False):
        ours = "portable kernel" if name == "fused" else name
        yield f"H200 {ours} (measured)", marker, {shape: row[name] for shape, row in measured.items()}


def _chunk_heads(shape: tuple[int, ...]) -> int:
    B, T, H, _ = shape
    return B * -(-T // CHUNK) * H
