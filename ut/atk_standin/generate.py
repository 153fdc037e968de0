"""The stand-in's `atk case`: a design and its generator plugin give a list of cases; also reads and writes case files.

Random values are drawn as plainly as possible, since the package's generator overwrites nearly all of them.
"""
from __future__ import annotations

import importlib.util
import itertools
import json
import random
import sys
from pathlib import Path
from types import ModuleType

from . import names, schema
from .configs import CaseConfig, InputCaseConfig, Standard

ATK_DEFAULT_SEED = 1234


def load_plugin(path: Path) -> ModuleType:
    """Execute a plugin file, as `-p` does; its decorators fill the registries."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def read_design(path: Path) -> dict:
    import yaml  # not needed to run frozen cases

    design = yaml.safe_load(path.read_text(encoding="utf-8"))
    schema.DESIGN(path.name, design)
    return design


def read_cases(path: Path) -> list[CaseConfig]:
    payload = json.loads(path.read_text(encoding="utf-8"))
    schema.CASES(path.name, payload)
    return [CaseConfig.from_payload(case) for case in payload]


def write_cases(cases: list[CaseConfig], path: Path) -> None:
    """One case a line: compact, and a changed case is one changed line."""
    lines = ",\n".join(json.dumps(case.payload(), separators=(",", ":")) for case in cases)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _draw(entry: dict, dtype: str) -> InputCaseConfig:
    valid = random.choice(entry["ranges"]["valid"]["values"])
    shape = None
    if entry["type"] == "tensor":
        size = random.choice(entry["shapes"]["dim_numbers"]["values"])
        shape = [random.choice(entry["shapes"]["dim_values"]["values"]) for _ in range(size)]
    return InputCaseConfig(entry["name"], entry["type"], entry["required"], dtype, shape, valid)


def generate(design: dict, dtype_numbers: int | None = None, seed: int = ATK_DEFAULT_SEED) -> list[CaseConfig]:
    """All cases of a design: `dtype_numbers` for every combination of the inputs' dtypes."""
    if design["generate"] not in names.GENERATORS:
        raise KeyError(f"generator {design['generate']!r} is not registered; known: {sorted(names.GENERATORS)}")
    generator = names.GENERATORS[design["generate"]](design)
    random.seed(seed)
    cases = []
    for dtypes in itertools.product(*(entry["dtypes"]["values"] for entry in design["inputs"])):
        for _ in range(design["dtype_numbers"] if dtype_numbers is None else dtype_numbers):
            drawn = [_draw(entry, dtype) for entry, dtype in zip(design["inputs"], dtypes, strict=True)]
            inputs = [generator.after_input_config(i, entry) for i, entry in enumerate(drawn)]
            generator.index += 1
            case = CaseConfig(
                id=0,
                default_seed=0,
                name=design["name"],
                aclnn_name="",
                version=design["version"],
                api=design["api"],
                api_type=design["api_type"],
                expected_error_msg=None,
                backward=False,
                standard=Standard(**design["standard"]),
                outputs=None,
                inputs=inputs,
            )
            case = generator.after_case_config(case)
            case.id = len(cases)
            cases.append(case)
    return cases
