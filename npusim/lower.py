"""Turns a device function of the IR into a Python generator: scalars run for real, every other op becomes a call.

The same generator feeds execute.py (data, order) and time.py (durations), so the two cannot drift apart. An op that
has no entry in the tables (here, in scalars.py and lower_hivm.py) stops here with its name. The generator yields where
an engine has to wait for another one.
"""
from __future__ import annotations

import re
import struct

from . import scalars
from .errors import UnsupportedError
from .lower_hivm import IGNORED, HivmWriter, Instr
from .lower_views import SSA
from .mlir_text import BITS, split_top
from .parse import Func, Module, Op
from .views import View, collapse, expand


def lower(module: Module, func: Func):
    """Compile `func` to a generator function (engine, args, block, sub_block); its source is in `.source`."""
    writer = _Writer(module, func)
    source = writer.write()
    scope = {"View": View, "collapse": collapse, "expand": expand, "R": scalars, "K": writer.instrs}
    exec(compile(source, f"<npusim {func.name}>", "exec"), scope)  # our own text, from the parsed IR
    kernel = scope["kernel"]
    kernel.source, kernel.instrs = source, writer.instrs
    return kernel


class _Writer(HivmWriter):
    def __init__(self, module: Module, func: Func) -> None:
        self.module, self.func = module, func
        self.instrs: list[Instr] = []
        self.lines: list[str] = []
        self.prologue: list[str] = []
        self.fixed: set[str] = set()  # Python names that the prologue defines
        self.env: dict[str, str] = {}
        self.depth, self.count, self.scalar_ops, self.loops = 1, 0, 0, 0

    def write(self) -> str:
        names = [self.bind(ssa) for ssa, _, _ in self.func.params]
        self.block(self.func.body)
        head = ["def kernel(X, args, block, sub):", f"    {', '.join(names)}, = args"]
        head += [f"    mem_{space} = X.memory({space!r})" for space in ("ub", "cbuf", "cc")]
        return "\n".join([*head, *self.prologue, *self.lines, "    return", "    yield", ""])

    # names and text ---------------------------------------------------------------------------------------------
    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def bind(self, ssa: str, expr: str | None = None) -> str:
        self.env[ssa] = expr or self.fresh()
        return self.env[ssa]

    def __getitem__(self, ssa: str) -> str:
        ssa = ssa.strip()
        if ssa not in self.env:
            if re.fullmatch(r"-?\d+", ssa):
                return ssa
            raise UnsupportedError(f"{self.func.name}: value {ssa!r} is used before it is defined")
        return self.env[ssa]

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def assign(self, op: Op, expr: str, fixed: bool = False) -> None:
        name = self.bind(op.results[0])
        if fixed:
            self.prologue.append(f"    {name} = {expr}")
            self.fixed.add(name)
        else:
            self.emit(f"{name} = {expr}")

    def unknown(self, op: Op, detail: str = "") -> UnsupportedError:
        return UnsupportedError(f"line {op.line}: IR op {op.name!r} {detail or 'is not modelled by npusim'}")

    def instr(self, op: Op, name: str, pipe: int, ins=(), outs=()) -> str:
        self.instrs.append(Instr(name, pipe, op, ins, outs, self.scalar_ops))
        self.scalar_ops = 0
        return f"K[{len(self.instrs) - 1}]"

    def flush(self) -> None:
        if self.scalar_ops:
            self.emit(f"X.tick({self.scalar_ops})")
            self.scalar_ops = 0

    # structure --------------------------------------------------------------------------------------------------
    def block(self, ops: list[Op]) -> None:
        for op in ops:
            if op.name.startswith("arith."):
                self.arith(op)
            elif op.name in ("affine.apply", "affine.min", "affine.max"):
                self.affine(op)
            elif op.name.startswith("memref."):
                self.memref(op)
            elif op.name in ("scf.for", "scf.if", "scf.while"):
                getattr(self, op.name.replace(".", "_"))(op)
            elif op.name.startswith("hivm.hir."):
                self.hivm(op)
            elif op.name not in ("scf.yield", "scf.condition", "block", "return", "func.return", *IGNORED):
                raise self.unknown(op)

    def region(self, ops: list[Op], targets: list[str]) -> None:
        """A nested body; what it yields is assigned to `targets`."""
        outer, self.depth = dict(self.env), self.depth + 1
        before = len(self.lines)
        self.block(ops)
        self.flush()
        if targets:
            values = [self[v] for v in SSA.findall(ops[-1].text.split(" : ")[0])]
            self.emit(f"{', '.join(targets)}, = {', '.join(values)},")
        if len(self.lines) == before:
            self.emit("pass")
        self.env, self.depth = outer, self.depth - 1

    def scf_if(self, op: Op) -> None:
        self.scalar_ops += 1
        self.flush()
        targets = [self.fresh() for _ in op.results]
        self.emit(f"if {self[SSA.search(op.text).group(0)]}:")
        self.region(op.regions[0], targets)
        if len(op.regions) > 1:
            self.emit("else:")
            self.region(op.regions[1], targets)
        for ssa, name in zip(op.results, targets, strict=True):
            self.env[ssa] = name

    def scf_for(self, op: Op) -> None:
        found = re.match(r"(%\S+) = (\S+) to (\S+) step (\S+)", op.text)
        carried = re.search(r"iter_args\((.*?)\) ->", op.text)
        pairs = [p.split(" = ") for p in split_top(carried.group(1), ",")] if carried else []
        self.flush()
        names = [self.fresh() for _ in pairs]
        for name, (_, start) in zip(names, pairs, strict=True):
            self.emit(f"{name} = {self[start]}")
        index = self.fresh()
        low, high, step = (self[found.group(k)] for k in (2, 3, 4))
        self.emit(f"for {index} in range({low}, {high}, {step}):")
        outer = dict(self.env)
        self.env[found.group(1)] = index
        for name, (ssa, _) in zip(names, pairs, strict=True):
            self.env[ssa.strip()] = name
        if self.loops == 0:
            self.depth += 1
            self.emit("X.iteration()")
            self.depth -= 1
        self.loops += 1
        self.scalar_ops += 2  # compare and branch
        self.region(op.regions[0], names)
        self.loops -= 1
        self.env = outer
        for ssa, name in zip(op.results, names, strict=True):
            final = self.bind(ssa)
            self.emit(f"{final} = {name}")

    def scf_while(self, op: Op) -> None:
        """Carried values go through the first region, which decides and passes on, then through the second."""
        inside = op.text[op.text.index("(") + 1:op.text.index(") : ")]
        pairs = [p.split(" = ") for p in split_top(inside, ",")]
        self.flush()
        names, passed = [self.fresh() for _ in pairs], [self.fresh() for _ in op.results]
        for name, (_, start) in zip(names, pairs, strict=True):
            self.emit(f"{name} = {self[start]}")
        self.emit("while True:")
        outer = dict(self.env)
        self.depth += 1
        self.env.update({ssa.strip(): name for name, (ssa, _) in zip(names, pairs, strict=True)})
        self.block(op.regions[0])
        self.scalar_ops += 1
        self.flush()
        test, *values = SSA.findall(op.regions[0][-1].text.split(" : ")[0])
        if passed:
            self.emit(f"{', '.join(passed)}, = {', '.join(self[v] for v in values)},")
        self.emit(f"if not {self[test]}: break")
        self.env = dict(outer)
        block, *body = op.regions[1]
        self.env.update(dict(zip(block.results, passed, strict=True)))
        self.depth -= 1
        self.region(body, names)
        self.env = outer
        self.env.update(dict(zip(op.results, passed, strict=True)))

    # scalars ----------------------------------------------------------------------------------------------------
    def arith(self, op: Op) -> None:
        kind = op.name[len("arith."):]
        if kind == "constant":
            self.env[op.results[0]] = _literal(op)
            return
        self.scalar_ops += 1
        values = [self[v] for v in SSA.findall(op.text)]
        type_name = op.text.rsplit(" : ", 1)[-1].strip()
        expr = scalars.expression(kind, op.text.split(",")[0].strip(), values, type_name)
        if expr is None:
            raise self.unknown(op)
        self.assign(op, expr)

    def affine(self, op: Op) -> None:
        self.scalar_ops += 1
        alias, rest = re.match(r"(#\w+|affine_map<.*?>)\s*(\(.*)", op.text).groups()
        body = self.module.maps[alias] if alias in self.module.maps else alias[len("affine_map<"):-1]
        left, right = body.split(" -> ")
        names = re.findall(r"[ds]\d+", left)
        bound = {n: self[v] for n, v in zip(names, SSA.findall(rest), strict=True)}
        exprs = [scalars.affine(e, bound) for e in split_top(right.strip()[1:-1], ",")]
        joined = exprs[0] if len(exprs) == 1 else f"{op.name.split('.')[1]}({', '.join(exprs)})"
        self.assign(op, joined)


def _literal(op: Op) -> str:
    value, _, type_name = op.text.rpartition(" : ")
    if op.text in ("true", "false"):
        return "1" if op.text == "true" else "0"
    if value.startswith("dense"):
        raise UnsupportedError(f"line {op.line}: constant {op.text} is not a scalar")
    if type_name in ("f32", "f16", "bf16", "f64"):
        if value.startswith("0x"):
            raw = int(value, 16)
            if type_name == "bf16":
                return f"R.special({struct.unpack('<f', struct.pack('<I', raw << 16))[0]!r})"
            code = {"f32": "<f", "f16": "<e", "f64": "<d"}[type_name]
            return f"R.special({struct.unpack(code, raw.to_bytes(BITS[type_name] // 8, 'little'))[0]!r})".replace(
                "(nan)", "('nan')").replace("(inf)", "('inf')").replace("(-inf)", "('-inf')")
        return repr(float(value))
    return value
