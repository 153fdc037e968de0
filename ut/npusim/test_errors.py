"""One clear line for everything npusim does not take: options, targets, packages, inputs, compiler failures."""
from __future__ import annotations

import importlib.util

import pytest

from npusim import backend, cli, frontend, plans
from npusim.errors import NpusimError, UnsupportedError

NO_HIVMC = """[ERROR] Cannot find hivmc under $PATH
loc("k.mlir":1:1): error: External hivmc run fails, returning module before running external compiler
[ERROR] Failed to run BiShengIR pipeline
"""
DUMP = "// -----// IR Dump Before ConvertHIVMToStandard (convert-hivm-to-std) //----- //\n{}\n"


def test_the_last_program_is_kept_and_the_absent_assembler_is_no_message():
    first, last = DUMP.format("module {\n  first\n}"), DUMP.format("module {\n  last\n}")
    found = backend.split(first + last + NO_HIVMC)
    assert found.hivm == "module {\n  last\n}\n"
    assert found.messages == ()


def test_messages_before_the_program_are_kept_in_order_and_once():
    text = "k.mlir:3: warning: b\n[NOTE] a\nk.mlir:3: warning: b\n" + DUMP.format("module {\n}") + NO_HIVMC
    assert backend.split(text).messages == ("k.mlir:3: warning: b", "[NOTE] a")


def test_an_error_after_the_program_is_a_failure():
    text = DUMP.format("module {\n}") + 'loc("k.mlir":9:1): error: pass x failed\n' + NO_HIVMC
    assert backend.split(text) is None
    assert "pass x failed" in str(backend.failure("k", "Ascend910B2", text))


def test_the_last_overflow_counts():
    text = "error: ub overflow, requires 300 bits while 100 bits available!\n" \
           "error: cbuf overflow, requires 200 bits while 150 bits available!\n"
    error = backend.failure("k", "Ascend910B2", text)
    assert (error.memory, error.needed_bits, error.available_bits) == ("cbuf", 200, 150)


def test_silence_of_the_compiler_is_said():
    assert "no message" in str(backend.failure("k", "Ascend910B2", ""))


@pytest.mark.parametrize(("target", "options", "message"), [
    ("Ascend910C", {}, "unknown target 'Ascend910C'; npusim knows Ascend910B1"),
    ("Ascend910B2", {"multi_buffer": True}, "unknown compiler option 'multi_buffer'; known: .*multibuffer"),
], ids=["target", "option"])
def test_unknown_names_are_named(target, options, message):
    with pytest.raises(UnsupportedError, match=message):
        backend.flags(target, options)


def test_options_that_only_gpus_use_pass_without_a_flag():
    assert backend.flags("Ascend910B2", {"num_warps": 8}) == backend.flags("Ascend910B2", {})


def test_a_missing_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(backend.shutil, "which", lambda name: None)
    with pytest.raises(NpusimError, match="pip install ascendnpu-ir"):
        backend.compiler_path()


def test_a_missing_front_end_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "triton.backends.ascend.compiler", None)
    with pytest.raises(NpusimError, match="pip install triton-ascend"):
        frontend.require_triton()


@pytest.mark.parametrize(("arguments", "message"), [
    (["time", "--op", "fast"], "--op fast: allowed are fused, unfused, upstream"),
    (["time", "--op", "no.such.module"], "--op no.such.module: no.such.module.plan is not there"),
    (["time", "--op", "upstream"], "needs --mindspeed-src"),
    (["time", "--op", "upstream", "--mindspeed-src", "/"], "neither MindSpeed nor MindSpeed-MM"),
    (["time", "--op", "fused", "--shape", "1,2,3"], "--shape 1,2,3: wanted five positive integers B,T,H,HV,K"),
    (["time", "--op", "fused", "--shape", "1,64,0,1,128"], "wanted five positive integers"),
    (["time", "--op", "fused", "--dtype", "int8"], "--dtype int8: allowed are bf16, fp16, fp32"),
    (["time", "--op", "fused", "--target", "A100"], "unknown target 'A100'"),
    (["time", "--op", "fused", "--varlen", "0,x"], "--varlen 0,x: wanted integers"),
    (["time", "--op", "fused", "--varlen", "0,9", "--shape", "2,64,1,1,128"], "wanted B=1 and offsets that start"),
    (["time", "--op", "fused", "--varlen", "0,9,5", "--shape", "1,64,1,1,128"], "never fall"),
    (["time", "--op", "fused", "--varlen", "0,65", "--shape", "1,64,1,1,128"], "at or before T=64"),
    (["run", "--op", "fused", "--regime", "easy"], "--regime easy: allowed are random, repeated"),
    (["compile", "--op", "fused"], "compile needs --out DIR"),
    (["time", "--op", "unfused", "--option", "multibuffer"], "wanted NAME=VALUE"),
], ids=lambda value: "_".join(value[1:]) if isinstance(value, list) else "")
def test_the_command_line_answers_in_one_line(arguments, message, capsys):
    assert cli.main(arguments) == 1
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""


def test_upstream_takes_one_head_count(tmp_path):
    shape = plans.Shape(1, 64, 1, 2, 128)
    with pytest.raises(NpusimError, match="HV == H, got H=1, HV=2"):
        plans.make("upstream", shape, mindspeed_src=str(tmp_path))
