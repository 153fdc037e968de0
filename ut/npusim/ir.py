"""Small HIVM programs and edits of programs for the tests of npusim's core. Text only: nothing is compiled here."""
from __future__ import annotations

import numpy as np

from npusim.floats import bf16_bits, from_storage

SPEC = ", ".join(f'#dlti.dl_entry<"{name}", {bits} : i32>' for name, bits in (
    ("CUBE_CORE_COUNT", 24), ("VECTOR_CORE_COUNT", 48), ("UB_SIZE", 1572864), ("L1_SIZE", 4194304),
    ("L0A_SIZE", 524288), ("L0B_SIZE", 524288), ("L0C_SIZE", 1048576)))
GM = "#hivm.address_space<gm>"
UB = "#hivm.address_space<ub>"


def program(params: list[str], body: list[str], core: str = "AIV") -> str:
    """A module with one device function. params: types of the run-time arguments %a0, %a1, …"""
    args = [f"%a{i}: {kind}" for i, kind in enumerate(params)]
    args += [f"%grid{axis}: i32" for axis in "xyz"]
    lines = "\n".join("    " + line for line in body)
    return (f"module attributes {{dlti.target_system_spec = #dlti.target_system_spec<\"NPU\" : "
            f"#hacc.target_device_spec<{SPEC}>>}} {{\n"
            f"  func.func @kernel({', '.join(args)}) attributes {{hacc.function_kind = #hacc.function_kind<DEVICE>, "
            f"hivm.func_core_type = #hivm.func_core_type<{core}>}} {{\n{lines}\n    return\n  }}\n}}\n")


def buffer(dtype: str) -> str:
    """Type of a global buffer."""
    return f"memref<?x{dtype}, {GM}>"


def tile(shape: str, space: str = UB) -> str:
    """Type of an on-chip tile, for example tile("8x64xf32")."""
    return f"memref<{shape}, {space}>"


def one_op(op: str, ins: list[str], out: str, constants: tuple[str, ...] = ()) -> str:
    """Loads each of `ins` (tile shapes) from %a0, %a1, …, runs `op` on %t0, %t1, … into %o, stores %o to the last one.

    `op` is the text with {ins} and {out} for the types; tiles lie 16 KB apart.
    """
    body = [f"%c{i}_i64 = arith.constant {16384 * i} : i64" for i in range(len(ins) + 1)]
    body += constants
    body += [f"%t{i} = hivm.hir.pointer_cast(%c{i}_i64) : {tile(kind)}" for i, kind in enumerate(ins)]
    body += [f"%o = hivm.hir.pointer_cast(%c{len(ins)}_i64) : {tile(out)}"]
    for i, kind in enumerate([*ins, out]):
        body.append(f"%g{i} = memref.reinterpret_cast %a{i} to offset: [0], sizes: [{_list(kind)}], strides: "
                    f"[{_strides(kind)}] : {buffer(_dtype(kind))} to memref<{kind}, strided<[{_strides(kind)}]>, {GM}>")
    for i, kind in enumerate(ins):
        body.append(f"hivm.hir.load ins(%g{i} : memref<{kind}, strided<[{_strides(kind)}]>, {GM}>) "
                    f"outs(%t{i} : {tile(kind)}) init_out_buffer = false")
    body += ["hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]",
             "hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]"]
    body.append(op.format(ins=", ".join(tile(kind) for kind in ins), out=tile(out)))
    body += ["hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]",
             "hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]",
             f"hivm.hir.store ins(%o : {tile(out)}) outs(%g{len(ins)} : "
             f"memref<{out}, strided<[{_strides(out)}]>, {GM}>)",
             "hivm.hir.pipe_barrier[<PIPE_ALL>]"]
    return program([buffer(_dtype(kind)) for kind in (*ins, out)], body)


def _dtype(kind: str) -> str:
    return kind.split("x")[-1]


def _list(kind: str) -> str:
    return ", ".join(kind.split("x")[:-1])


def _strides(kind: str) -> str:
    extents = [int(n) for n in kind.split("x")[:-1]]
    return ", ".join(str(int(np.prod(extents[i + 1:]))) for i in range(len(extents)))


def without(text: str, line_part: str, nth: int = 0) -> str:
    """The program without the nth line that contains `line_part`; an error when there is none."""
    lines = text.split("\n")
    places = [i for i, line in enumerate(lines) if line_part in line]
    if nth >= len(places):
        raise AssertionError(f"the program has {len(places)} lines with {line_part!r}, wanted number {nth}")
    del lines[places[nth]]
    return "\n".join(lines)


def bf16(values) -> np.ndarray:
    """fp32 values as bf16 bits."""
    return bf16_bits(np.asarray(values, np.float32))


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """bf16 bits as fp32 values."""
    return from_storage(bits, "bf16")
