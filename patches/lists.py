"""Additions to lists in upstream files: the feature lists of Python packages, tables and menus of documents.

Each finds its place by structure or by a neighbour, adds once, and refuses where the place is not there.
"""
from __future__ import annotations

import ast

from .errors import PatchError


def add_feature(source: str, path: str, function: str, name: str, module: str) -> str:
    """`name()` at the end of the list that `function` extends, and the import after the last one."""
    tree = ast.parse(source)
    if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree)):
        return source
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    entries = [node for definition in found for node in ast.walk(definition)
               if isinstance(node, ast.List) and node.elts]
    if len(entries) != 1:
        raise PatchError(f"{path}: {function} with one list of features was expected, found {len(entries)}")
    lines = source.splitlines(keepends=True)
    last = entries[0].elts[-1]
    line = lines[last.end_lineno - 1]
    if line[last.end_col_offset:].strip() != ",":
        raise PatchError(f"{path}: the last feature of {function} is not on a line of its own with a comma")
    lines.insert(last.end_lineno, " " * last.col_offset + f"{name}(),\n")
    lines.insert(import_line(tree, module), f"from {module} import {name}\n")
    return "".join(lines)


def import_line(tree: ast.Module, module: str) -> int:
    """The line after which an import of `module` goes: after the last one of its package, else after the last."""
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    package = module.partition(".")[0]
    alike = [node for node in imports if isinstance(node, ast.ImportFrom) and not node.level
             and node.module.partition(".")[0] == package]
    return max(node.end_lineno for node in alike or imports)


def add_after(source: str, path: str, anchor: str, line: str) -> str:
    """`line` after the last line that contains `anchor`, unless it is there."""
    if line.strip() in source:
        return source
    lines = source.splitlines(keepends=True)
    at = [i for i, text in enumerate(lines) if anchor in text]
    if not at:
        raise PatchError(f"{path}: no line contains {anchor!r}; the new entry's place is not known")
    lines.insert(at[-1] + 1, line.rstrip("\n") + "\n")
    return "".join(lines)


def add_before(source: str, path: str, anchor: str, line: str) -> str:
    """`line` before the last line that contains `anchor`, unless it is there."""
    if line.strip() in source:
        return source
    lines = source.splitlines(keepends=True)
    at = [i for i, text in enumerate(lines) if anchor in text]
    if not at:
        raise PatchError(f"{path}: no line contains {anchor!r}; the new entry's place is not known")
    lines.insert(at[-1], line.rstrip("\n") + "\n")
    return "".join(lines)
