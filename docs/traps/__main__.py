"""`python -m docs.traps [ID ...]`: compiles all reproductions into docs/data/traps.json, or some, and prints them."""
from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import version

from ..figure_data import DATA, TRAPS

IDS = ("split_depth", "bind_sub_block", "batched_dot", "tile_4d", "same_pointer", "nan_min_max",
       "permute_planes")


def look_at(name: str) -> dict:
    trap = importlib.import_module(f"{__package__}.{name}")
    return {"id": name, "title_en": trap.TITLE_EN, "title_zh": trap.TITLE_ZH, "bad": trap.bad(), "good": trap.good()}


def main(names: list[str]) -> int:
    if unknown := set(names) - set(IDS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(IDS)}")
    found = [look_at(name) for name in names or IDS]
    for row in found:
        print(f"{row['id']}: {row['bad']}  |  {row['good']}")
    if not names:
        compiler = f"triton-ascend {version('triton-ascend')}, ascendnpu-ir {version('ascendnpu-ir')}"
        (DATA / TRAPS).write_text(json.dumps({"compiler": compiler, "target": "Ascend910B2", "traps": found}, indent=1,
                                             ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
