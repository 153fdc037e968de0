"""npusim.execute: what compiled kernels and single ops compute, op by op against numpy, kernels against float64."""
from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from npusim.errors import NpusimError, UnsupportedError
from npusim.execute import run
from npusim.floats import hf32
from npusim.isolate import call
from npusim.parse import parse_module
from npusim.semantics import from_fractal, product, to_fractal
from npusim.views import Meta
from ut.npusim import ir, kernels, programs

RNG = np.random.default_rng(7)


def run_one(op: str, ins: list[tuple[str, np.ndarray]], out: str, constants: tuple[str, ...] = ()) -> np.ndarray:
    """Result of one op on tiles (shape text, values), checked to be free of findings."""
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i32": np.int32}[out.split("x")[-1]]
    shape = [int(n) for n in out.split("x")[:-1]]
    result = np.zeros(int(np.prod(shape)), dtype)
    text = ir.one_op(op, [kind for kind, _ in ins], out, constants)
    found = run(parse_module(text), 1, [*(np.ascontiguousarray(v).reshape(-1) for _, v in ins), result]).findings
    assert found == []
    return result.reshape(shape)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


BINARY = {"vadd": np.add, "vsub": np.subtract, "vmul": np.multiply, "vdiv": np.divide, "vmax": np.maximum,
          "vmin": np.minimum}


@pytest.mark.parametrize("op", BINARY)
def test_two_tiles_in_fp32(op):
    x, y = floats(8, 64), floats(8, 64)
    got = run_one(f"hivm.hir.{op} ins(%t0, %t1 : {{ins}}) outs(%o : {{out}})", [("8x64xf32", x), ("8x64xf32", y)],
                  "8x64xf32")
    assert np.array_equal(got, BINARY[op](x, y))


def test_fp16_arithmetic_rounds_after_every_op():
    x, y = floats(8, 64).astype(np.float16), floats(8, 64).astype(np.float16)
    got = run_one("hivm.hir.vmul ins(%t0, %t1 : {ins}) outs(%o : {out})", [("8x64xf16", x), ("8x64xf16", y)],
                  "8x64xf16")
    assert np.array_equal(got, (x.astype(np.float64) * y).astype(np.float16))


def test_narrow_operands_are_broadcast():
    x, y = floats(8, 1), floats(1, 64)
    got = run_one("hivm.hir.vsub ins(%t0, %t1 : {ins}) outs(%o : {out}) broadcast = [0, 1]",
                  [("8x1xf32", x), ("1x64xf32", y)], "8x64xf32")
    assert np.array_equal(got, x - y)


def test_a_select_follows_the_compared_tiles():
    x, y = floats(8, 64), floats(8, 64)
    text = ("%m = hivm.hir.pointer_cast(%c49152_i64) : " + ir.tile("8x64xi1") + "\n"
            "    hivm.hir.vcmp ins(%t0, %t1 : {ins}) outs(%m : " + ir.tile("8x64xi1") + ") compare_mode = <gt>\n"
            "    hivm.hir.pipe_barrier[<PIPE_V>]\n"
            "    hivm.hir.vsel ins(%m, %t0, %zero : " + ir.tile("8x64xi1") + ", " + ir.tile("8x64xf32")
            + ", f32) outs(%o : {out})")
    got = run_one(text, [("8x64xf32", x), ("8x64xf32", y)], "8x64xf32",
                  ("%zero = arith.constant 0.000000e+00 : f32", "%c49152_i64 = arith.constant 65536 : i64"))
    assert np.array_equal(got, np.where(x > y, x, 0))


@pytest.mark.parametrize("axes, out", [("0", "1x6x8xf32"), ("1", "4x1x8xf32"), ("2", "4x6x1xf32")],
                         ids=["leading", "middle", "last"])
def test_sums_over_each_axis(axes, out):
    x = floats(4, 6, 8)
    got = run_one(f"hivm.hir.vreduce <sum> ins(%t0 : {{ins}}) outs(%o : {{out}}) reduce_dims = [{axes}]",
                  [("4x6x8xf32", x)], out)
    assert np.allclose(got, x.sum(int(axes), keepdims=True), atol=1e-6)


@pytest.mark.parametrize("order, out", [("1, 0, 2", "6x4x8xf32"), ("0, 2, 1", "4x8x6xf32")])
def test_transposes(order, out):
    x = floats(4, 6, 8)
    got = run_one(f"hivm.hir.vtranspose ins(%t0 : {{ins}}) outs(%o : {{out}}) permutation = [{order}]",
                  [("4x6x8xf32", x)], out)
    assert np.array_equal(got, x.transpose([int(a) for a in order.split(",")]))


def test_casts_round_to_nearest_even():
    x = floats(4, 64) * 100
    got = run_one("hivm.hir.vcast ins(%t0 : {ins}) outs(%o : {out})", [("4x64xf32", x)], "4x64xbf16")
    assert np.array_equal(got, torch.tensor(x).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16))
    ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 3.49, -3.51, 7.0], np.float32).reshape(1, 8)
    for mode, how in (("rint", np.rint), ("trunc", np.trunc), ("floor", np.floor), ("ceil", np.ceil)):
        got = run_one(f"hivm.hir.vcast ins(%t0 : {{ins}}) outs(%o : {{out}}) round_mode = <{mode}>",
                      [("1x8xf32", ties)], "1x8xi32")
        assert np.array_equal(got, how(ties).astype(np.int32)), mode


def test_rounding_to_whole_numbers_keeps_the_type():
    x = np.array([0.5, 1.5, -0.5, -2.5, 2.4, -2.6, 7.0, 8.9], np.float32).reshape(1, 8)
    for mode, how in (("round", lambda v: np.trunc(v + np.copysign(0.5, v))), ("floor", np.floor), ("rint", np.rint)):
        got = run_one(f"hivm.hir.vcast ins(%t0 : {{ins}}) outs(%o : {{out}}) round_mode = <{mode}>", [("1x8xf32", x)],
                      "1x8xf32")
        assert np.array_equal(got, how(x)), mode


def test_channels_of_the_last_axis():
    x, y = floats(4, 8), floats(4, 8)
    both = run_one("hivm.hir.vinterleave ins(%t0, %t1 : {ins}) outs(%o : {out}) interleave_channel_nums = 2",
                   [("4x8xf32", x), ("4x8xf32", y)], "4x16xf32")
    assert np.array_equal(both[:, ::2], x) and np.array_equal(both[:, 1::2], y)
    odd = run_one("hivm.hir.vdeinterleave ins(%t0 : {ins}) outs(%o : {out}) channel_num = 2 index_mode = <CHANNEL_1>",
                  [("4x16xf32", both)], "4x8xf32")
    assert np.array_equal(odd, y)
    assert np.array_equal(run_one("hivm.hir.vflip ins(%t0 : {ins}) outs(%o : {out}) flip_axis = 1", [("4x8xf32", x)],
                                  "4x8xf32"), x[:, ::-1])


def test_loops_with_a_condition_and_carried_values():
    loop = ["%zero = arith.constant 0 : i32", "%one = arith.constant 1 : i32", "%at = arith.constant 0 : index",
            "%r:2 = scf.while (%n = %zero, %s = %zero) : (i32, i32) -> (i32, i32) {",
            "  %more = arith.cmpi slt, %n, %a1 : i32", "  scf.condition(%more) %n, %s : i32, i32", "} do {",
            "^bb0(%n: i32, %s: i32):", "  %next = arith.addi %n, %one : i32", "  %sum = arith.addi %s, %next : i32",
            "  scf.yield %next, %sum : i32, i32", "}",
            f"memref.store %r#1, %a0[%at] : {ir.buffer('i32')}"]
    out = np.zeros(1, np.int32)
    assert run(parse_module(ir.program([ir.buffer("i32"), "i32"], loop)), 1, [out, 10]).findings == []
    assert out[0] == 55


def test_an_atomic_store_is_refused_by_name():
    text = ir.one_op("hivm.hir.vadd ins(%t0, %t0 : {ins}, {ins}) outs(%o : {out})", ["8x64xf32"], "8x64xf32")
    atomic = re.sub(r"(hivm\.hir\.store .*)", r"\1 atomic = <add>", text)
    with pytest.raises(UnsupportedError, match="atomic store"):
        run(parse_module(atomic), 1, [np.zeros(512, np.float32), np.zeros(512, np.float32)])


def test_a_reduction_without_meaning_is_named():
    with pytest.raises(UnsupportedError, match="max_with_index"):
        run_one("hivm.hir.vreduce <max_with_index> ins(%t0 : {ins}) outs(%o : {out}) reduce_dims = [1]",
                [("4x8xf32", floats(4, 8))], "4x1xf32")


def test_fractals_hold_a_matrix_and_products_accumulate_in_fp32():
    matrix = floats(40, 24)
    assert np.array_equal(from_fractal(to_fractal(matrix, (3, 3, 16, 8)))[:40], matrix)

    class Instr:
        attrs = {"b_transpose": "true"}

    a, b = floats(16, 32), floats(16, 32)
    assert np.allclose(product(a, b, 16, 32, 16, Instr), a @ b.T, atol=1e-5)
    Instr.attrs = {"enable_HF32": "true"}
    assert np.allclose(product(a, b.T, 16, 32, 16, Instr), hf32(a) @ hf32(b.T), atol=1e-5)


@pytest.mark.parametrize("rows", [64, 77])
def test_a_vector_kernel_with_and_without_a_tail(rows):
    one = call(kernels.compiled, "scale", T=rows)
    x, scale, out = floats(rows, 64), floats(rows), np.full((rows, 64), np.nan, np.float32)
    result = run(parse_module(one["hivm"]), one["grid"], [x.reshape(-1), scale, out.reshape(-1), rows])
    assert result.findings == [] and np.array_equal(out, x * scale[:, None])


@pytest.fixture(scope="module")
def gram():
    return call(kernels.compiled, "gram")


def gram_arguments(rows: int = 256):
    k = RNG.standard_normal((rows, 128)).astype(np.float32)
    return [ir.bf16(k).reshape(-1), floats(rows), np.full(rows * 64, np.nan, np.float32), rows]


def gram_wanted(args):
    k = ir.from_bf16(args[0]).reshape(-1, 64, 128).astype(np.float64)
    return k @ k.transpose(0, 2, 1) * args[1].reshape(-1, 64, 1)


def test_cube_and_both_vector_cores_together(gram):
    args = gram_arguments()
    result = run(parse_module(gram["hivm"]), 3, args)
    assert result.findings == [] and result.blocks == [0, 1, 2]
    assert np.allclose(args[2].reshape(-1, 64, 64), gram_wanted(args), rtol=1e-5, atol=1e-4)


def test_blocks_that_do_not_run_leave_their_output_alone(gram):
    args = gram_arguments()
    run(parse_module(gram["hivm"]), 4, args, blocks=[2])
    done = ~np.isnan(args[2].reshape(4, -1)).any(1)
    assert done.tolist() == [False, False, True, False]


@pytest.mark.parametrize("change, named", [
    (lambda a: [*a[:3]], "4 run-time arguments, got 3"), (lambda a: [Meta(10), *a[1:]], "argument 0 needs data"),
    (lambda a: [a[0], a[1].astype(np.float64), *a[2:]], "argument 1 is float64"),
    (lambda a: [*a[:3], a[0]], "argument 3 of gram_mix_ai. is a scalar")])
def test_arguments_that_do_not_fit_are_named(gram, change, named):
    with pytest.raises(NpusimError, match=named):
        run(parse_module(gram["hivm"]), 2, change(gram_arguments()))


def test_an_unknown_target_and_a_block_outside_the_grid_are_named(gram):
    with pytest.raises(UnsupportedError, match="Ascend310"):
        run(parse_module(gram["hivm"]), 2, gram_arguments(), target="Ascend310")
    with pytest.raises(NpusimError, match="not all within the grid's 2"):
        run(parse_module(gram["hivm"]), 2, gram_arguments(), blocks=[2])


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("shape, offsets", [("1,128,2,4,128", None), ("2,70,1,2,64", None),
                                            ("1,150,2,2,128", (0, 30, 30, 94, 150))], ids=["whole", "tail", "packed"])
def test_the_unfused_chain_runs_as_compiled(shape, offsets, dtype):
    """Within the operator's bounds of the float64 reference, without findings, zeros outside every sequence."""
    outcome, result = call(programs.run_plan, "unfused", shape, dtype, offsets)
    assert outcome.findings == () and outcome.sound, outcome.text()
    interpreted = programs.interpreted_plan("unfused", shape, dtype, offsets)
    step = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 1e-6}[dtype]
    assert np.abs(result - interpreted).max() <= 2 * step * np.abs(interpreted).max()
