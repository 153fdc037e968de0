"""The operator's files in an upstream package, made from the plugin's own sources so that nothing exists twice.

What is needed is found by following imports from op.py and the Ascend kernel. Only names change: the package's, the
custom op's, the logger's; rows of `paths.PATHS` whose kernels are left out (GPU, two-call chain) go as well.
"""
from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .errors import PatchError

PLUGIN = Path(__file__).resolve().parents[1] / "mindspeed_kkt_plugin"
ROOTS = ("op.py", "reference.py", "kernels/__init__.py", "kernels/ascend.py")
LEFT_OUT = ("portable", "two_call")  # upstream has its own two calls, and no GPU
# What upstream's ruff (0.14) checks by default, and what its settings add; later versions check more by default.
RULES = "--select=E4,E7,E9,F,D209,SIM115"
HEADER = "# -*- coding: utf-8 -*-\n# Copyright (c) 2026, Huawei Technologies Co., Ltd. All rights reserved.\n"


def files(package: str, templates: Path) -> dict[str, str]:
    """Path → text of every file of the operator, for the importable name `package`."""
    folder = package.replace(".", "/")
    out = {f"{folder}/{name}": HEADER + "\n" + _renamed(name, package) for name in sources()}
    for name in ("__init__.py", "switch.py", "version.py"):
        text = (templates / "operator" / name).read_text(encoding="utf-8")
        text = text.replace("upstream_package", package).replace("@VERSION@", version())
        out[f"{folder}/{name}"] = HEADER + "\n" + text
    return out


def sources() -> tuple[str, ...]:
    """The plugin's files that op.py and the Ascend kernel need, by their imports."""
    found, waiting = set(), list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        if not (PLUGIN / name).is_file():
            raise PatchError(f"the plugin has no {name}, which the upstream operator is made of")
        found.add(name)
        waiting += _imports(name)
    return tuple(sorted(found))


def _imports(name: str) -> list[str]:
    folder = (PLUGIN / name).parent
    out = []
    for node in ast.walk(ast.parse((PLUGIN / name).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = folder if node.level == 1 else folder.parent
        base = base.joinpath(*(node.module or "").split("."))
        for file in [base.with_suffix(".py")] + [base / f"{alias.name}.py" for alias in node.names]:
            if file.is_file():
                out.append(file.relative_to(PLUGIN).as_posix())
    return out


def _renamed(name: str, package: str) -> str:
    text = (PLUGIN / name).read_text(encoding="utf-8")
    if name == "paths.py":
        text = without_paths(text, LEFT_OUT)
        text = text.replace("from . import __version__", "from .version import __version__")
    if name == "kernels/shared.py":
        text = only(text, _names_imported_from_shared())
    text = text.replace('"mindspeed_kkt_plugin::kkt_solve"', '"mindspeed::gdn_kkt_solve"')
    return text.replace('"mindspeed_kkt_plugin"', f'"{package}"').replace("mindspeed_kkt_plugin.", f"{package}.")


def without_paths(text: str, names: tuple[str, ...]) -> str:
    """paths.py without these rows of PATHS."""
    rows = next(node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)
                and getattr(node.targets[0], "id", "") == "PATHS").elts
    lines = text.splitlines(keepends=True)
    for row in reversed(rows):
        if row.args[0].value in names:
            del lines[row.lineno - 1:row.end_lineno]
    return "".join(lines)


def _names_imported_from_shared() -> set[str]:
    trees = [ast.parse((PLUGIN / name).read_text(encoding="utf-8")) for name in sources()]
    return {alias.name for tree in trees for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "shared" for alias in node.names}


def only(text: str, wanted: set[str]) -> str:
    """A module without the functions and constants that `wanted` does not need: nothing dead goes upstream."""
    tree = ast.parse(text)
    defines = {}
    for node in tree.body:
        for target in node.targets if isinstance(node, ast.Assign) else [node]:
            if isinstance(node, (ast.Assign, ast.FunctionDef)):
                defines[target.id if isinstance(node, ast.Assign) else node.name] = node
    needed, waiting = set(), set(wanted)
    while waiting:
        name = waiting.pop()
        needed.add(name)
        used = {node.id for node in ast.walk(defines[name]) if isinstance(node, ast.Name)}
        waiting |= (used & defines.keys()) - needed
    lines = text.splitlines(keepends=True)
    for name, node in reversed(defines.items()):
        if name not in needed:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            while lines[first - 2].startswith("#"):
                first -= 1
            del lines[first - 1:node.end_lineno]
    return "".join(lines)


def version() -> str:
    return re.search(r'__version__ = "([^"]+)"', (PLUGIN / "__init__.py").read_text(encoding="utf-8")).group(1)


def class_source(file: str, methods: tuple[str, ...]) -> str:
    """The first class of a plugin file, with only these methods: for what upstream does in another way."""
    text = (PLUGIN / file).read_text(encoding="utf-8")
    node = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    lines = text.splitlines(keepends=True)
    kept = [child for child in node.body
            if not isinstance(child, ast.FunctionDef) or child.name in methods]
    parts = ["".join(lines[child.lineno - 1:child.end_lineno]) for child in kept]
    return "".join(lines[node.lineno - 1:node.body[0].lineno - 1]) + "\n".join(parts)


def formatted(texts: dict[str, str], config: Path) -> dict[str, str]:
    """Python files after upstream's own ruff settings: safe fixes, then its formatter. Others as they are."""
    options = ["--config", str(config)] if config.is_file() else ["--config", "line-length=120"]
    with tempfile.TemporaryDirectory() as folder:
        files = {path: Path(folder) / path for path in texts if path.endswith(".py")}
        for path, file in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(texts[path], encoding="utf-8")
        for command in (["check", "--fix", "--quiet", "--exit-zero", RULES], ["format", "--quiet"]):
            done = subprocess.run([sys.executable, "-m", "ruff", *command, *options, "--no-cache", *files.values()],
                                  capture_output=True, text=True)
            if done.returncode:
                raise PatchError(f"ruff {command[0]} failed: {done.stderr.strip()[-300:]}")
        return texts | {path: file.read_text(encoding="utf-8") for path, file in files.items()}
