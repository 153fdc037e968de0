"""Reads docs/data: files that the tools wrote, unchanged. Arranges nothing; a file that is not there reads as None."""
from __future__ import annotations

import csv
import json
from pathlib import Path

DATA = Path(__file__).parent / "data"
ESTIMATES = "npusim_910b2_bf16.json"  # python -m npusim report --json
NUMERICS = "numerics.json"  # python -m docs.numerics
ASCEND_RUNS = "ascend_runs.json"  # python -m docs.ascend_runs
RESOURCES = "resources.json"  # python -m npusim resources --op fused --json
TRAPS = "traps.json"  # python -m docs.traps
PUBLISHED = "published.csv"
H200 = "h200_bench.json"  # python -m mindspeed_kkt_plugin.bench --device cuda --against fla --json
ATK_ACCURACY = "atk_h200_accuracy.csv"  # columns of the report that run_local.py accuracy --device cuda wrote
ATK_PERFORMANCE = "atk_h200_performance.csv"  # likewise, performance
ATK_PERFORMANCE_CASES = (Path(__file__).parents[1] / "atk/chunk_gated_delta_rule_fwd_kkt_solve"
                         / "atk_chunk_gated_delta_rule_fwd_kkt_solve_perf.json")

# Product pages of NVIDIA: streaming multiprocessors and boost clock in GHz.
SMS_AND_CLOCK = {"A100": (108, 1.41), "H200": (132, 1.98)}


def load(name: str):
    file = DATA / name
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def h200() -> dict | None:
    """The bench's JSON for bf16 on an H200."""
    strays = sorted({file.name for file in DATA.glob("h200_*.json")} - {H200})
    if strays:
        raise ValueError(f"docs/data holds {', '.join(strays)} besides {H200}: one bench file of the H200 is shown")
    bench = load(H200)
    if bench is None:
        return None
    if (bench.get("kind"), bench.get("dtype")) != ("measured", "bf16"):
        raise ValueError(f"{H200} is {bench.get('kind')}, {bench.get('dtype')}; wanted measured, bf16")
    return bench


def clock(bench: dict) -> str:
    """The clock that tables show: CUDA graphs where the bench has them."""
    times = bench["shapes"][0]["times"]
    return "graph" if "graph" in times else next(iter(times))


def h200_times(by: str | None = None) -> dict[tuple[int, ...], dict[str, float]]:
    """(B, T, H, K) → name → median in µs by that clock; nothing where the bench lacks it."""
    bench = h200()
    if bench is None:
        return {}
    by = by or clock(bench)
    return {tuple(row["shape"]): {name: times["median_us"] for name, times in row["times"][by].items()}
            for row in bench["shapes"] if by in row["times"]}


def table(name: str) -> list[dict[str, str]]:
    """Rows of a CSV file; none where it is not there."""
    file = DATA / name
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def atk_cases() -> int:
    """How many performance cases the ATK package has."""
    return len(json.loads(ATK_PERFORMANCE_CASES.read_text(encoding="utf-8")))


def estimates() -> dict[tuple[int, ...], dict]:
    """(B, T, H, K) → npusim's row, for shapes with H = HV."""
    data = load(ESTIMATES)
    out = {}
    for row in data["rows"] if data else []:
        B, T, H, HV, K = (int(x) for x in row["shape"].split(","))
        if H == HV:
            out[B, T, H, K] = row
    return out


def published() -> list[dict]:
    return [{**row, "shape": tuple(int(row[axis]) for axis in "BTHK"), "us": float(row["us"])}
            for row in table(PUBLISHED)]


def a100_factor() -> float:
    """How much faster an H200 is by multiprocessors times clock; memory and launches scale otherwise."""
    rate = {name: sms * clock for name, (sms, clock) in SMS_AND_CLOCK.items()}
    return rate["H200"] / rate["A100"]
