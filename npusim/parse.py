"""Reads the text of the last HIVM module (normal MLIR printing) into typed ops, regions and attributes.

Only syntax lives here: what an op means is lower.py and semantics.py, what it costs is cost.py.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field

from .errors import NpusimError, UnsupportedError
from .mlir_text import closing, parse_type, split_top


@dataclass
class Op:
    """One operation.

    results: SSA names; operands: SSA names in order of appearance outside groups; groups: named operand lists of a
    HIVM op (`ins`, `outs`, `temp_buffer`, …) as (name, type) pairs; attrs: what is printed as name = value or in
    braces; types: trailing types; regions: bodies; line: line number in the text.
    """

    name: str
    line: int
    results: list[str] = field(default_factory=list)
    text: str = ""
    groups: dict[str, list[tuple[str, object]]] = field(default_factory=dict)
    attrs: dict[str, str] = field(default_factory=dict)
    brackets: list[str] = field(default_factory=list)
    regions: list[list[Op]] = field(default_factory=list)


@dataclass
class Func:
    """A function: params are (SSA name, type, attribute text); `core` is AIC, AIV or "" for host functions."""

    name: str
    line: int
    params: list[tuple[str, object, str]]
    attrs: str
    body: list[Op] = field(default_factory=list)

    @property
    def core(self) -> str:
        found = re.search(r"hivm\.func_core_type = #hivm\.func_core_type<(\w+)>", self.attrs)
        return found.group(1) if found else ""

    @property
    def is_host(self) -> bool:
        return "hacc.function_kind<HOST>" in self.attrs

    @property
    def visible(self) -> list[tuple[str, object, str]]:
        """Parameters that the launch gives: without the hidden ones and the three grid extents at the end."""
        return [p for p in self.params if "hacc.arg_type" not in p[2]][:-3]


@dataclass
class Module:
    """functions by name; maps: affine aliases; target_spec: the target's limits in bits; workspace_bytes: per block."""

    functions: dict[str, Func]
    maps: dict[str, str]
    target_spec: dict[str, int]
    workspace_bytes: int
    text: str

    def kernels(self) -> list[Func]:
        """Device functions: one for a pure kernel, the cube's and the vector's for a mixed one."""
        return [f for f in self.functions.values() if not f.is_host and f.core in ("AIC", "AIV")]

    @property
    def core_type(self) -> str:
        cores = {f.core for f in self.kernels()}
        return "MIX" if len(cores) > 1 else next(iter(cores), "")


def parse_module(text: str) -> Module:
    """Parse the module in `text`; lines before and after it (compiler messages, dump headers) are skipped."""
    lines = text.split("\n")
    start = next((i for i, line in enumerate(lines) if re.match(r"\s*module\b", line)), None)
    if start is None:
        raise NpusimError("no `module` found: this is not the HIVM text of a compiled kernel")
    maps = {}
    for line in lines:
        found = re.match(r"(#\w+) = affine_map<(.*)>\s*$", line)
        if found:
            maps[found.group(1)] = found.group(2)
    spec = {k: int(v) for k, v in re.findall(r'dl_entry<"(\w+)", (\d+) : i32>', lines[start])}
    functions, i = {}, start + 1
    while i < len(lines):
        line = lines[i].strip()
        if line.startswith("func.func"):
            func = _func_header(line, i + 1)
            func.body, i, _ = _region(lines, i + 1)
            functions[func.name] = func
        elif line == "}":
            break
        else:
            i += 1
    module = Module(functions, maps, spec, 0, text)
    module.workspace_bytes = _host_constant(module, "infer_workspace_shape_function")
    return module


def _func_header(line: str, number: int) -> Func:
    name = re.match(r"func\.func (?:private )?@([\w.$-]+)", line)
    if not name:
        raise NpusimError(f"line {number}: cannot read the function header {line[:60]!r}")
    open_at = line.index("(")
    close_at = closing(line, open_at)
    params = []
    for part in split_top(line[open_at + 1:close_at], ","):
        ssa, rest = part.split(":", 1)
        brace = rest.find("{")
        attrs = rest[brace:] if brace >= 0 else ""
        params.append((ssa.strip(), parse_type(rest[:brace] if brace >= 0 else rest), attrs))
    return Func(name.group(1), number, params, line[close_at + 1:])


def _region(lines: list[str], i: int) -> tuple[list[Op], int, str]:
    """Ops from line index i up to the closing brace; returns (ops, index after the brace, text after the brace)."""
    ops: list[Op] = []
    while i < len(lines):
        line = lines[i].strip()
        if not line or line.startswith("//"):
            i += 1
        elif line.startswith("^bb0("):  # what a loop's body is given
            ops.append(Op("block", i + 1, [p.split(":")[0].strip() for p in split_top(line[5:line.rindex(")")], ",")]))
            i += 1
        elif line.startswith("}"):
            return ops, i + 1, line[1:].strip()
        elif line.endswith("{"):
            op, (body, i, after) = _op(line[:-1].strip(), i + 1), _region(lines, i + 1)
            op.regions.append(body)
            while after.endswith("{"):  # } else {
                if after.split()[0] not in ("else", "do"):
                    raise UnsupportedError(f"line {i}: region {after!r} of {op.name} is not known")
                body, i, after = _region(lines, i)
                op.regions.append(body)
            if after:
                op.attrs.update(_attr_dict(after))
            ops.append(op)
        else:
            ops.append(_op(line, i + 1))
            i += 1
    raise NpusimError("the IR text ends inside a region")


_HEAD = re.compile(r"(?:(%[\w.$-]+(?::\d+)?(?:, %[\w.$-]+)*) = )?([a-z_]\w*(?:\.\w+)*)(.*)$", re.S)


def _op(line: str, number: int) -> Op:
    found = _HEAD.match(line)
    if not found:
        raise NpusimError(f"line {number}: cannot read the op {line[:80]!r}")
    results, name, rest = found.groups()
    names = []
    if results:
        for part in results.split(", "):
            base, _, count = part.partition(":")
            names += [f"{base}#{k}" for k in range(int(count))] if count else [base]
    op = Op(name, number, names, rest.strip())
    if name.startswith("hivm."):
        _hivm_rest(op)
    return op


def _hivm_rest(op: Op) -> None:
    """Groups `word(…)`, attributes `word = …`, brackets `[…]`, attribute dictionaries and bare `<…>` of a HIVM op."""
    text, i = op.text, 0
    word = ""
    while i < len(text):
        c = text[i]
        if c == "(":
            end = closing(text, i)
            op.groups.setdefault(word or "args", []).extend(_group(text[i + 1:end]))
            word, i = "", end + 1
        elif c == "[":
            end = closing(text, i)
            if word:  # `strides[%c1]`, `unit_flag[…]`
                op.attrs[word] = text[i:end + 1]
            else:
                op.brackets += [part.strip("<> ") for part in split_top(text[i + 1:end], ",")]
            word, i = "", end + 1
        elif c == "{":
            end = closing(text, i)
            op.attrs.update(_attr_dict(text[i:end + 1]))
            i = end + 1
        elif c == "<":
            end = closing(text, i)
            op.attrs["arith"] = text[i + 1:end]
            i = end + 1
        elif text.startswith("->", i):
            return
        elif c == "=" or (c == ":" and word in ("round", "is_signed")):
            i, value = _value(text, i + 1)
            op.attrs[word] = value
            word = ""
        elif c in " ,:":
            i += 1
        elif c == "%":
            found = re.match(r"%[\w.$-]+(?:#\d+)?", text[i:])
            op.groups.setdefault(word or "args", []).append((found.group(0), None))
            word, i = "", i + found.end()
        else:
            found = re.match(r"[\w.#-]+", text[i:])
            if not found:
                raise NpusimError(f"line {op.line}: cannot read {text[i:i + 40]!r} in {op.name}")
            word, i = found.group(0), i + found.end()


def _value(text: str, i: int) -> tuple[int, str]:
    while text[i] == " ":
        i += 1
    if text[i] in "[{<(":
        end = closing(text, i)
        return end + 1, text[i + 1:end] if text[i] == "<" else text[i:end + 1]
    found = re.match(r"[^\s,]+(?:<[^>]*>)?", text[i:])
    value = found.group(0)
    i += found.end()
    typed = re.match(r" : [\w.]+", text[i:])  # `pad_value = %cst : f32`
    return i + (typed.end() if typed else 0), value


def _group(text: str) -> list[tuple[str, object]]:
    halves = split_top(text, ":")
    names = split_top(halves[0], ",") if halves else []
    types = split_top(halves[1], ",") if len(halves) > 1 else []
    return [(name, parse_type(types[k]) if k < len(types) else None) for k, name in enumerate(names)]


def _attr_dict(text: str) -> dict[str, str]:
    text = text.strip()
    if text.startswith("attributes"):
        text = text[len("attributes"):].strip()
    out = {}
    for part in split_top(text[1:-1], ",") if text.startswith("{") else []:
        key, _, value = part.partition("=")
        out[key.strip().strip('"')] = value.strip() or "true"
    return out


def _host_constant(module: Module, suffix: str) -> int:
    """What a host function without parameters returns, where it returns a constant; 0 where there is none."""
    for func in module.functions.values():
        if func.is_host and suffix in func.attrs:
            constants = {op.results[0]: op.text.split(":")[0] for op in func.body if op.name == "arith.constant"}
            returned = next((op.text.split(":")[0].strip() for op in func.body if op.name.endswith("return")), "")
            if returned not in constants:
                raise UnsupportedError(f"{func.name} does not return a constant")
            return int(constants[returned])
    return 0
