"""How HIVM ops become calls to an engine: tensor ops, the cube's product, and what orders them.

An op that is not in the tables stops here with its name. Control flow and scalars are lower.py's.
"""
from __future__ import annotations

from .lower_views import ViewWriter
from .mlir_text import split_top
from .parse import Op
from .views import ALL, FIX, MTE1, MTE2, MTE3, M, S, V

PIPE_OF = {"PIPE_S": S, "PIPE_V": V, "PIPE_M": M, "PIPE_MTE1": MTE1, "PIPE_MTE2": MTE2, "PIPE_MTE3": MTE3,
           "PIPE_FIX": FIX, "PIPE_ALL": ALL}
VECTOR_OPS = {"vadd", "vsub", "vmul", "vdiv", "vmax", "vmin", "vexp", "vln", "vabs", "vrelu", "vsqrt", "vrsqrt", "vrec",
              "vnot", "vor", "vand", "vxor", "vcast", "vcmp", "vsel", "vbrc", "vreduce", "varange", "vtranspose",
              "vinterleave", "vdeinterleave", "vpad", "vconcat", "vgather", "vflip", "vcumsum", "vshl", "vshr", "vmod"}
MOVES = {"load": MTE2, "nd2nz": MTE2, "store": MTE3, "fixpipe": FIX}
IGNORED = {"hivm.hir.set_mask_norm", "hivm.hir.set_ffts_base_addr", "annotation.mark", "hivm.hir.anchor"}


class Instr:
    """What is known of an op before it runs. name, pipe, attrs, line; ins/outs: types (MemRef or scalar type name);
    pre: scalar operations issued since the instruction before; unit_flag: the cube's product and fixpipe order each
    other without flags."""

    __slots__ = ("name", "pipe", "attrs", "line", "ins", "outs", "pre", "unit_flag")

    def __init__(self, name, pipe, op, ins=(), outs=(), pre=0):
        self.name, self.pipe, self.attrs, self.line = name, pipe, op.attrs, op.line
        self.ins, self.outs, self.pre = ins, outs, pre
        self.unit_flag = "<ENABLED" in op.text

    def __repr__(self) -> str:
        return f"{self.name} (line {self.line})"


class HivmWriter(ViewWriter):
    """The part of lower.py's writer that deals with HIVM ops."""

    def hivm(self, op: Op) -> None:
        kind = op.name[len("hivm.hir."):]
        if op.name in IGNORED:
            return
        if kind == "pointer_cast":
            self.pointer_cast(op)
        elif kind in ("get_block_idx", "get_sub_block_idx", "get_block_num", "get_sub_block_num"):
            self.env[op.results[0]] = {"get_block_idx": "block", "get_sub_block_idx": "sub",
                                       "get_block_num": "X.blocks", "get_sub_block_num": "X.sub_blocks"}[kind]
        elif kind in ("set_flag", "wait_flag", "pipe_barrier", "sync_block_set", "sync_block_wait"):
            self.order(op, kind)
        elif kind == "mmadL1":
            self.mmad(op)
        elif kind in MOVES or kind in VECTOR_OPS or kind == "copy":
            self.tensor_op(op, kind)
        else:
            raise self.unknown(op)

    def order(self, op: Op, kind: str) -> None:
        for name in op.brackets:
            if name.startswith("PIPE_") and name not in PIPE_OF:
                raise self.unknown(op, f"on {name} is not modelled by npusim")
        if kind == "pipe_barrier":
            pipe = PIPE_OF[op.brackets[0]]
            key = self.instr(op, kind, pipe)
            self.emit(f"while not X.drain({key}): yield" if pipe == ALL else f"X.barrier({key}, {pipe})")
        elif kind in ("set_flag", "wait_flag"):
            source, target = PIPE_OF[op.brackets[0]], PIPE_OF[op.brackets[1]]
            event = op.brackets[2]
            event = event[len("EVENT_ID"):] if event.startswith("EVENT_ID") else self[event]
            key = self.instr(op, kind, source if kind == "set_flag" else target)
            call = f"X.{kind}({key}, {source}, {target}, {event})"
            self.emit(f"while not {call}: yield" if kind == "wait_flag" and target == S else call)
        else:
            if "sync_instr_mode" in op.attrs and "INTRA_BLOCK" not in op.attrs["sync_instr_mode"]:
                raise self.unknown(op, f"with {op.attrs['sync_instr_mode']} is not modelled by npusim")
            flag = op.attrs["flag"]
            flag = self[flag] if flag.startswith("%") else flag
            pipe = PIPE_OF[op.brackets[1]]
            key = self.instr(op, kind, pipe if kind == "sync_block_set" else S)
            call = f"X.{kind}({key}, {pipe}, {flag})"
            self.emit(call if kind == "sync_block_set" else f"while not {call}: yield")

    def mmad(self, op: Op) -> None:
        ins = op.groups["ins"]
        self.no_condition(op)
        if len(ins) != 6:
            raise self.unknown(op, "with a bias is not modelled by npusim")
        values = [self[n] for n, _ in ins]
        sync = [self[n] for n, _ in op.groups.get("sync_related_args", [])] or ["-1"] * 7
        (out, out_type), = op.groups["outs"]
        key = self.instr(op, "mmadL1", M, tuple(t for _, t in ins), (out_type,))
        self.emit(f"X.mmad({key}, {', '.join(values)}, {self[out]}, ({', '.join(sync)}))")

    def no_condition(self, op: Op) -> None:
        if "unit_flag_cond" in op.groups or "unit_flag_cond" in op.attrs:
            raise self.unknown(op, "with a unit-flag condition is not modelled by npusim")

    def tensor_op(self, op: Op, kind: str) -> None:
        self.no_condition(op)
        for key, allowed in (("init_out_buffer", "false"), ("is_signed", "true"), ("isSigned", "true"),
                             ("unsigned_src", "false"), ("transpose", "[]")):
            if op.attrs.get(key, allowed) != allowed:
                raise self.unknown(op, f"with {key} = {op.attrs[key]} is not modelled by npusim")
        ins, outs = op.groups.get("ins", []), op.groups.get("outs", [])
        pipe = MOVES.get(kind, V)
        if kind == "load" and outs[0][1].space == "cbuf" or kind == "vbrc" and outs[0][1].space == "cbuf":
            pipe = MTE2
        if kind == "copy" and (ins[0][1].space, outs[0][1].space) != ("ub", "ub"):
            raise self.unknown(op, f"{ins[0][1].space} to {outs[0][1].space} is not modelled by npusim")
        values = [self[n] for n, _ in ins]
        if kind == "varange":
            offset = op.attrs.get("offset", "[0]").strip("[]")
            values = [self[v] for v in (offset, *split_top(op.attrs["strides"][1:-1], ","))]
        for extra in ("pad_value", "left_padding_num", "right_padding_num", "init_condition"):
            if op.attrs.get(extra, "").startswith("%"):
                op.attrs[extra] = self[op.attrs[extra]]
        temps = [self[n] for n, _ in op.groups.get("temp_buffer", [])]
        key = self.instr(op, kind, pipe, tuple(t for _, t in ins), tuple(t for _, t in outs))
        lists = [f"({', '.join(v)}{',' if v else ''})" for v in (values, [self[n] for n, _ in outs], temps)]
        self.emit(f"X.op({key}, {', '.join(lists)})")
