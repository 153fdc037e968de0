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

# Product pages of NVIDIA: streaming multiprocessors and boost clock in GHz.
SMS_AND_CLOCK = {"A100": (108, 1.41), "H200": (132, 1.98)}


def load(name: str):
    file = DATA / name
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def h200() -> dict | None:
    """The bench's JSON for bf16 that times the most ways on an H200."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(DATA.glob("h200_*.json"))]
    fit = [one for one in found if isinstance(one, dict) and one.get("shapes")
           and (one.get("kind"), one.get("dtype")) == ("measured", "bf16")]
    return max(fit, key=lambda one: (len(_ways(one)), len(one["shapes"])), default=None)


def _ways(bench: dict) -> dict:
    times = bench["shapes"][0]["times"]
    return times.get("graph") or next(iter(times.values()))


def h200_times() -> dict[tuple[int, ...], dict[str, float]]:
    """(B, T, H, K) → name → median in µs; CUDA graphs where the bench has that clock."""
    rows = (h200() or {"shapes": []})["shapes"]
    return {tuple(row["shape"]): {name: times["median_us"] for name, times in _ways({"shapes": [row]}).items()}
            for row in rows}


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
    with (DATA / "published.csv").open(encoding="utf-8", newline="") as file:
        return [{**row, "shape": tuple(int(row[axis]) for axis in "BTHK"), "us": float(row["us"])}
                for row in csv.DictReader(file)]


def a100_factor() -> float:
    """How much faster an H200 is by multiprocessors times clock; memory and launches scale otherwise."""
    rate = {name: sms * clock for name, (sms, clock) in SMS_AND_CLOCK.items()}
    return rate["H200"] / rate["A100"]
