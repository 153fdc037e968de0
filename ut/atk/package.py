"""The operator's ATK package as the tests see it: its files, and its plugins loaded behind the stand-in."""
from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from ut.atk_standin import generate, names

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = "chunk_gated_delta_rule_fwd_kkt_solve"
PACKAGE = ROOT / "atk" / OPERATOR
DESIGNS = {"accuracy": PACKAGE / f"{OPERATOR}.yaml", "performance": PACKAGE / f"{OPERATOR}_perf.yaml"}
CASE_FILES = {"accuracy": PACKAGE / f"atk_{OPERATOR}.json", "performance": PACKAGE / f"atk_{OPERATOR}_perf.json"}
GENERATOR = PACKAGE / f"gen_{OPERATOR}.py"
EXECUTOR = PACKAGE / f"executor_{OPERATOR}.py"

if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))

needs_standin = pytest.mark.skipif(names.real_atk(), reason="a real ATK is installed, so the stand-in stays away")


def module(name: str):
    """A helper module of the package."""
    return importlib.import_module(name)


def plugin(path: Path):
    """A plugin file of the package, executed as ATK's `-p` does."""
    names.install()
    return generate.load_plugin(path)


def frozen(kind: str) -> list[dict]:
    return json.loads(CASE_FILES[kind].read_text(encoding="utf-8"))


def short(case: dict) -> str:
    return case["name"].removeprefix(f"{OPERATOR}_")
