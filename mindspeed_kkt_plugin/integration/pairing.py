"""Decides from its source whether a forward uses the pair in the one way that may be fused: kkt's value goes into
solve and nowhere else. Reads source only; runs nothing, patches nothing.
"""
from __future__ import annotations

import ast
import inspect
import textwrap
import types

from .consumers import KKT, SOLVE

# Called by keyword only, so that no position can mean two things in two versions. Required ones have no default
# that we would have to guess.
_KKT_REQUIRED, _KKT_ALLOWED = {"k", "g", "beta", "chunk_size", "output_dtype"}, {"gk", "cu_seqlens", "chunk_indices"}
_SOLVE_REQUIRED, _SOLVE_ALLOWED = {"A", "output_dtype"}, {"cu_seqlens", "chunk_indices"}


class _Unpaired(Exception):
    """The forward does something with the pair that we do not recognise; the message says what."""


def why_unpaired(forward: object) -> str | None:
    """Why this function object may not be fused, or None. Decorated functions are not looked into."""
    if not isinstance(forward, types.FunctionType):
        return f"it is a {type(forward).__name__}, not a plain function"
    if hasattr(forward, "__wrapped__"):
        return "another decorator is around it"
    for name in (KKT, SOLVE):
        if not callable(forward.__globals__.get(name)):
            return f"its module has no callable {name}"
    try:
        source = textwrap.dedent(inspect.getsource(forward))
    except (OSError, TypeError) as error:
        return f"its source cannot be read ({error})"
    return why_unpaired_source(source, forward.__name__)


def why_unpaired_source(source: str, function: str) -> str | None:
    """The same question for the text of a module (or of the function alone); nothing is imported."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return f"its source does not parse (line {error.lineno})"
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    if len(found) != 1:
        return f"its source defines {function} {len(found)} times"
    try:
        _check(found[0])
    except _Unpaired as error:
        return str(error)
    return None


def _check(forward: ast.FunctionDef) -> None:
    if forward.decorator_list:
        raise _Unpaired("it is decorated")
    if any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in ast.walk(forward)):
        raise _Unpaired("it declares global or nonlocal names")
    at = [i for i, statement in enumerate(forward.body) if _call_of(statement, KKT)]
    if _mentions(forward, KKT) != 1 or len(at) != 1:
        raise _Unpaired(f"{KKT} is not called exactly once, as `A = {KKT}(...)` in the function's body")
    pending = _call_of(forward.body[at[0]], KKT)
    _check_keywords(pending, KKT, _KKT_REQUIRED, _KKT_ALLOWED)
    value = forward.body[at[0]].targets[0].id
    inner = [node for node in ast.walk(forward) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    if any(_mentions(node, value) for node in inner if node is not forward):
        raise _Unpaired(f"an inner function uses {value}, the value of {KKT}")
    rest = forward.body[at[0] + 1:]
    user = next((i for i, statement in enumerate(rest) if _mentions(statement, value)), None)
    if user is None:
        raise _Unpaired(f"the value of {KKT} is never used")
    solved = _solve_targets(rest[user], value)
    if _mentions(forward, SOLVE) != len(solved):
        raise _Unpaired(f"{SOLVE} is also used for something else")
    if len(set(solved)) != 1:
        raise _Unpaired(f"the branches around {SOLVE} assign different names")
    if solved[0] != value and any(_mentions(statement, value) for statement in rest[user + 1:]):
        raise _Unpaired(f"the value of {KKT} is used again after {SOLVE}")


def _solve_targets(statement: ast.stmt, value: str) -> list[str]:
    """The names that get the solved value: one, or one per branch of an `if` whose branches do only that."""
    if isinstance(statement, ast.If) and not _mentions(statement.test, value):
        if len(statement.body) == len(statement.orelse) == 1:
            return _solve_targets(statement.body[0], value) + _solve_targets(statement.orelse[0], value)
    call = _call_of(statement, SOLVE)
    if call is None:
        raise _Unpaired(f"line {statement.lineno} of it uses the value of {KKT} for something other than {SOLVE}")
    _check_keywords(call, SOLVE, _SOLVE_REQUIRED, _SOLVE_ALLOWED)
    argument = next(keyword.value for keyword in call.keywords if keyword.arg == "A")
    if not (isinstance(argument, ast.Name) and argument.id == value) or _mentions(call, value) != 1:
        raise _Unpaired(f"{SOLVE} is not given the value of {KKT}, unchanged and once, as A")
    return [statement.targets[0].id]


def _call_of(statement: ast.stmt, name: str) -> ast.Call | None:
    """The call in a statement of the exact form `target = name(...)`, else None."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return None
    call = statement.value
    plain = isinstance(statement.targets[0], ast.Name) and isinstance(call, ast.Call)
    return call if plain and isinstance(call.func, ast.Name) and call.func.id == name else None


def _check_keywords(call: ast.Call, name: str, required: set[str], allowed: set[str]) -> None:
    given = [keyword.arg for keyword in call.keywords]
    if call.args or None in given:
        raise _Unpaired(f"{name} is called with positional or unpacked arguments")
    if missing := required - set(given):
        raise _Unpaired(f"{name} is called without {', '.join(sorted(missing))}")
    if unknown := set(given) - required - allowed:
        raise _Unpaired(f"{name} is called with unknown {', '.join(sorted(unknown))}")


def _mentions(node: ast.AST, name: str) -> int:
    """How often a name occurs in any role: loaded, stored, an argument, an import, a nested definition."""
    names = 0
    for child in ast.walk(node):
        names += isinstance(child, ast.Name) and child.id == name
        names += isinstance(child, ast.arg) and child.arg == name
        names += isinstance(child, ast.alias) and (child.asname or child.name) == name
        names += isinstance(child, (ast.FunctionDef, ast.ClassDef)) and child.name == name
    return names
