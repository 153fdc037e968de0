"""npusim.parse, scalars and floats: what the text says, and the arithmetic of its scalar types."""
from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim import scalars
from npusim.errors import NpusimError, UnsupportedError
from npusim.floats import bf16_bits, hf32
from npusim.isolate import call
from npusim.lower import lower
from npusim.mlir_text import MemRef, parse_type
from npusim.parse import parse_module
from ut.npusim import ir, kernels

INTS = st.integers(-2**31, 2**31 - 1)


@pytest.fixture(scope="module")
def gram() -> str:
    return call(kernels.compiled, "gram")["hivm"]


def test_types_carry_shape_strides_and_space():
    kind = parse_type("memref<?x64xbf16, strided<[128, 1], offset: ?>, #hivm.address_space<gm>>")
    assert kind == MemRef((None, 64), "bf16", (128, 1), "gm")
    assert parse_type("memref<4x2x16x8xf32, #hivm.address_space<cbuf>>").strides == (256, 128, 8, 1)
    assert parse_type("index") == "index"


def test_a_mixed_kernel_is_two_functions_with_limits_and_workspace(gram):
    module = parse_module(gram)
    assert module.core_type == "MIX" and sorted(f.core for f in module.kernels()) == ["AIC", "AIV"]
    assert module.target_spec["UB_SIZE"] == 1572864
    assert module.workspace_bytes % (64 * 64 * 4) == 0 < module.workspace_bytes
    assert [kind if isinstance(kind, str) else kind.dtype for _, kind, _ in module.kernels()[0].visible] == [
        "bf16", "f32", "f32", "i32"]


def test_the_compilers_raw_output_reads_like_the_module_alone(gram):
    noise = "[ERROR] Cannot find hivmc\n// -----// IR Dump Before X //----- //\n"
    raw = parse_module(noise + gram + "\n[ERROR] Failed to run BiShengIR pipeline\n")
    assert list(raw.functions) == list(parse_module(gram).functions)
    assert len(raw.kernels()[0].body) == len(parse_module(gram).kernels()[0].body)


def test_operands_attributes_and_brackets_of_hivm_ops(gram):
    found = {}

    def walk(ops):
        for op in ops:
            found.setdefault(op.name, op)
            for region in op.regions:
                walk(region)

    for function in parse_module(gram).kernels():
        walk(function.body)
    mmad = found["hivm.hir.mmadL1"]
    assert "b_transpose" in mmad.attrs and len(mmad.groups["ins"]) == 6 and len(mmad.groups["sync_related_args"]) == 7
    assert [b.split("_")[0] for b in found["hivm.hir.set_flag"].brackets[:2]] == ["PIPE", "PIPE"]
    assert found["hivm.hir.load"].groups["outs"][0][1].space == "ub"
    assert found["hivm.hir.sync_block_wait"].brackets[0] == "CUBE" and "flag" in found["hivm.hir.sync_block_wait"].attrs


@pytest.mark.parametrize("line, named", [
    ("hivm.hir.vquantise ins(%x : f32) outs(%y : f32)", "hivm.hir.vquantise"),
    ("%x = tensor.empty() : tensor<4xf32>", "tensor.empty"),
    ("%x = arith.mystery %gridx : i32", "arith.mystery"),
    ("hivm.hir.vmax ins(%gridx : i32) outs(%gridy : i32) is_signed = false", "is_signed = false"),
    ("hivm.hir.load ins(%gridx : i32) outs(%gridy : memref<4xf32>) init_out_buffer = true", "init_out_buffer = true"),
    ("hivm.hir.set_flag[<PIPE_V2>, <PIPE_V>, <EVENT_ID0>]", "PIPE_V2"),
], ids=["vector-op", "dialect", "arith", "unsigned", "fill", "pipe"])
def test_an_unknown_op_is_one_line_that_names_it(line, named):
    module = parse_module(ir.program([], [line]))
    with pytest.raises(UnsupportedError, match=named) as caught:
        lower(module, module.kernels()[0])
    assert "\n" not in str(caught.value) and "line 3" in str(caught.value)


def test_text_that_is_no_module_is_said_to_be_none():
    with pytest.raises(NpusimError, match="no `module` found"):
        parse_module("define void @llvm() {}")
    with pytest.raises(NpusimError, match="ends inside a region"):
        parse_module(ir.program([], ["scf.if %gridx {"]).rstrip().rstrip("}"))
    with pytest.raises(UnsupportedError, match="f8E4M3FN"):
        parse_type("memref<4xf8E4M3FN>")


@given(INTS, INTS.filter(bool))
@settings(max_examples=200, deadline=None)
def test_division_truncates_and_the_remainder_fits(a, b):
    assert scalars.divsi(a, b) * b + scalars.remsi(a, b) == a
    assert abs(scalars.remsi(a, b)) < abs(b) and scalars.remsi(a, b) * a >= 0


@given(st.integers(-2**63, 2**63 - 1))
@settings(max_examples=200, deadline=None)
def test_32_bit_results_wrap_as_twos_complement(x):
    assert scalars.wrap32(x) == int(np.array(x, np.int64).astype(np.int32))


@pytest.mark.parametrize("text, values, wanted", [
    ("s0 floordiv 4", {"s0": -5}, -2), ("s0 mod 4", {"s0": -5}, 3), ("(s0 + 1) ceildiv 4", {"s0": 4}, 2),
    ("d0 * 128 + s0 - s1 floordiv 3", {"d0": 2, "s0": 5, "s1": 8}, 259)])
def test_affine_maps_follow_mlir(text, values, wanted):
    assert eval(scalars.affine(text, {name: str(value) for name, value in values.items()})) == wanted


@given(st.floats(width=32, allow_nan=False))
@settings(max_examples=300, deadline=None)
def test_bf16_rounds_like_torch(x):
    wanted = torch.tensor(x, dtype=torch.float32).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert bf16_bits(np.array([x], np.float32))[0] == wanted
    assert scalars.rounded(x, "bf16") == torch.tensor(x, dtype=torch.float32).to(torch.bfloat16).item()


def test_bf16_keeps_nan_and_hf32_keeps_eleven_bits():
    assert np.isnan(ir.from_bf16(bf16_bits(np.array([np.nan], np.float32))))[0]
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert np.abs(hf32(values) / values - 1).max() <= 2.0**-12
    assert np.array_equal(hf32(hf32(values)), hf32(values))
    assert np.isinf(hf32(np.array([np.inf], np.float32)))[0]
