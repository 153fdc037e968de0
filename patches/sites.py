"""Edits a forward that calls `solve_tril(chunk_scaled_dot_kkt_fwd(...))`, by the positions of its syntax tree.

The two calls stay as they are, in the other branch of an `if`; the fused call gets the caller's own arguments, copied
from its text. Which forwards there are is said in the plugin's consumers.py, what qualifies in its pairing.py.
"""
from __future__ import annotations

import ast

from mindspeed_kkt_plugin.integration.consumers import KKT, SOLVE, Consumer
from mindspeed_kkt_plugin.integration.pairing import why_unpaired_source

from .errors import PatchError
from .lists import import_line

TAKES = "fused_kkt_solve_takes"
FUSED = "chunk_gated_delta_rule_fwd_kkt_solve"


def path_of(consumer: Consumer) -> str:
    return consumer.module.replace(".", "/") + ".py"


def edit(source: str, consumer: Consumer, imported_from: str) -> str:
    """The file with the fused branch, or as it is if it has it. Raises PatchError where the pair is not recognised."""
    if "\r" in source:
        raise PatchError(f"{path_of(consumer)} has Windows line ends; the edit goes by lines")
    if f"{TAKES}(" in source:
        return source
    if reason := why_unpaired_source(source, consumer.function):
        raise PatchError(f"{path_of(consumer)}: the two calls in {consumer.function} are not as expected: {reason}. "
                         "Look at what changed upstream before editing by hand")
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    function = next(node for node in ast.walk(tree)
                    if isinstance(node, ast.FunctionDef) and node.name == consumer.function)
    first, last = _pair(function, consumer)
    fused = _fused_lines(source, first, last, consumer)
    pad = " " * first.col_offset
    start, end = first.lineno - 1, last.end_lineno
    branch = [f"{pad}else:\n"] + ["    " + line if line.strip() else line for line in lines[start:end]]
    edited = lines[:start] + [f"{pad}{line}\n" for line in fused] + branch + lines[end:]
    edited.insert(import_line(tree, imported_from), f"from {imported_from} import {FUSED}, {TAKES}\n")
    out = "".join(edited)
    ast.parse(out)
    return out


def _pair(function: ast.FunctionDef, consumer: Consumer) -> tuple[ast.stmt, ast.stmt]:
    """The statement that calls kkt and the one right after it that calls solve (an `if` when both branches do)."""
    at = next(i for i, statement in enumerate(function.body) if _calls(statement, KKT))
    after = function.body[at + 1]
    if not _calls(after, SOLVE):
        raise PatchError(f"{path_of(consumer)}: line {after.lineno} stands between {KKT} and {SOLVE}; they must be "
                         "neighbours to become one branch")
    return function.body[at], after


def _calls(statement: ast.stmt, name: str) -> list[ast.Call]:
    return [node for node in ast.walk(statement)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name]


def _fused_lines(source: str, first: ast.stmt, last: ast.stmt, consumer: Consumer) -> list[str]:
    kkt = {word.arg: ast.get_source_segment(source, word.value) for word in _calls(first, KKT)[0].keywords}
    wanted = {ast.get_source_segment(source, word.value) for call in _calls(last, SOLVE) for word in call.keywords
              if word.arg == "output_dtype"}
    if len(wanted) != 1:
        raise PatchError(f"{path_of(consumer)}: the calls of {SOLVE} ask for different types: {', '.join(wanted)}")
    given = {name: kkt[name] for name in ("k", "g", "beta", "cu_seqlens", "chunk_size") if name in kkt}
    given["output_dtype"] = wanted.pop()
    if consumer.head_first_k:  # only k is there; the operator wants all three alike, and takes views
        given |= {name: f"{given[name]}.transpose(1, 2)" for name in ("g", "beta")} | {"head_first": "True"}
    if consumer.head_first_A:
        given["output_head_first"] = "True"
    target = _assigned(last)
    words = ", ".join(f"{name}={value}" for name, value in given.items())
    view = ".transpose(1, 2)" if consumer.head_first_A else ""
    note = ["    # Written head-first, so that the transposing copy below has nothing to do."] if view else []
    return [f"fused_args = dict({words})" if len(words) < 90 else
            "fused_args = dict(\n" + "".join(f"{' ' * (first.col_offset + 4)}{name}={value},\n"
                                             for name, value in given.items()) + " " * first.col_offset + ")",
            f"if {TAKES}(**fused_args):", *note, f"    {target} = {FUSED}(**fused_args){view}"]


def _assigned(statement: ast.stmt) -> str:
    return next(node.targets[0].id for node in ast.walk(statement) if isinstance(node, ast.Assign))
