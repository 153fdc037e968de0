"""Which forwards may be fused, by their source alone: the five we know, and everything that must be refused."""
from __future__ import annotations

from pathlib import Path

import pytest

from mindspeed_kkt_plugin.integration.consumers import CONSUMERS
from mindspeed_kkt_plugin.integration.pairing import why_unpaired, why_unpaired_source

KKT = "chunk_scaled_dot_kkt_fwd(k=k, g=g, beta=b, cu_seqlens=c, chunk_size=64, output_dtype=f32)"
SOLVE = "solve_tril(A=A, cu_seqlens=c, output_dtype=k.dtype)"
STANDIN = Path(__file__).parent / "standin"


def forward(*lines: str) -> str:
    return "def fwd(k, g, b, c):\n" + "\n".join("    " + line for line in lines)


ACCEPTED = {
    "same-name": forward(f"A = {KKT}", f"A = {SOLVE}", "return A"),
    "other-name": forward(f"A = {KKT}", f"Ai = {SOLVE}", "return Ai"),
    "unrelated-statement-between": forward(f"A = {KKT}", "n = len(k)", f"A = {SOLVE}", "return A, n"),
    "both-branches-solve": forward(f"A = {KKT}", "if c:", f"    A = {SOLVE}", "else:", f"    A = {SOLVE}", "return A"),
    "elif-chain": forward(f"A = {KKT}", "if c:", f"    A = {SOLVE}", "elif g:", f"    A = {SOLVE}",
                          "else:", f"    A = {SOLVE}", "return A"),
    "A-used-before-as-another": forward("A = g", "x = A + 1", f"A = {KKT}", f"A = {SOLVE}", "return A, x"),
}
REFUSED = {
    "A-used-between": (forward(f"A = {KKT}", "print(A)", f"A = {SOLVE}", "return A"), "line 3"),
    "A-saved-between": (forward(f"A = {KKT}", "raw = A", f"A = {SOLVE}", "return A"), "line 3"),
    "A-changed-between": (forward(f"A = {KKT}", "A.mul_(2)", f"A = {SOLVE}", "return A"), "line 3"),
    "A-kept-after": (forward(f"A = {KKT}", f"Ai = {SOLVE}", "return Ai, A"), "used again after"),
    "A-changed-in-the-call": (forward(f"A = {KKT}", "A = solve_tril(A=A * 2, output_dtype=f32)"), "unchanged and once"),
    "A-in-another-argument": (forward(f"A = {KKT}", "A = solve_tril(A=A, output_dtype=A.dtype)"), "unchanged and once"),
    "A-in-the-condition": (forward(f"A = {KKT}", "if A is g:", f"    A = {SOLVE}", "else:", f"    A = {SOLVE}"),
                           "line 3"),
    "one-branch-only": (forward(f"A = {KKT}", "if c:", f"    A = {SOLVE}", "return A"), "line 3"),
    "branches-differ": (forward(f"A = {KKT}", "if c:", f"    A = {SOLVE}", "else:", f"    B = {SOLVE}"),
                        "different names"),
    "a-branch-does-more": (forward(f"A = {KKT}", "if c:", "    x = A", f"    A = {SOLVE}", "else:", f"    A = {SOLVE}"),
                           "line 3"),
    "kkt-in-a-branch": (forward("if c:", f"    A = {KKT}", "else:", "    A = g", f"A = {SOLVE}"), "exactly once"),
    "kkt-in-a-loop": (forward("for i in c:", f"    A = {KKT}", f"    A = {SOLVE}"), "exactly once"),
    "kkt-twice": (forward(f"A = {KKT}", f"A = {KKT}", f"A = {SOLVE}"), "exactly once"),
    "kkt-passed-on": (forward(f"A = {KKT}", f"A = {SOLVE}", "run(chunk_scaled_dot_kkt_fwd)"), "exactly once"),
    "kkt-imported-inside": (forward("from m import chunk_scaled_dot_kkt_fwd", f"A = {KKT}", f"A = {SOLVE}"),
                            "exactly once"),
    "solve-twice": (forward(f"A = {KKT}", f"A = {SOLVE}", f"A = {SOLVE}"), "something else"),
    "solve-missing": (forward(f"A = {KKT}", "return g"), "never used"),
    "kkt-missing": (forward("A = g", f"A = {SOLVE}", "return A"), "exactly once"),
    "solve-called-as-attribute": (forward(f"A = {KKT}", "A = ops.solve_tril(A=A, output_dtype=f32)"), "line 3"),
    "nested-in-one-expression": (forward("A = solve_tril(A=" + KKT + ", output_dtype=f32)"), "exactly once"),
    "kkt-positional": (forward("A = chunk_scaled_dot_kkt_fwd(k, g, b, c, 64, f32)", f"A = {SOLVE}"), "positional"),
    "kkt-unpacked": (forward("A = chunk_scaled_dot_kkt_fwd(**c)", f"A = {SOLVE}"), "unpacked"),
    "kkt-default-chunk-size": (forward("A = chunk_scaled_dot_kkt_fwd(k=k, g=g, beta=b, output_dtype=f32)",
                                       f"A = {SOLVE}"), "without chunk_size"),
    "kkt-new-argument": (forward(f"A = {KKT[:-1]}, scale=2)", f"A = {SOLVE}"), "unknown scale"),
    "solve-new-argument": (forward(f"A = {KKT}", f"A = {SOLVE[:-1]}, upper=True)"), "unknown upper"),
    "tuple-target": (forward(f"A, x = {KKT}", f"A = {SOLVE}"), "exactly once"),
    "attribute-target": (forward(f"k.A = {KKT}", "A = solve_tril(A=k.A, output_dtype=f32)"), "exactly once"),
    "seen-by-an-inner-function": (forward("def peek(): return A", f"A = {KKT}", f"A = {SOLVE}"), "inner function"),
    "global-name": (forward("global A", f"A = {KKT}", f"A = {SOLVE}"), "global"),
    "decorated": ("@jit\n" + forward(f"A = {KKT}", f"A = {SOLVE}"), "decorated"),
    "not-there": ("x = 1", "0 times"),
    "defined-twice": (forward("pass") + "\n" + forward("pass"), "2 times"),
    "not-python": ("def fwd(:", "does not parse"),
}


@pytest.mark.parametrize("source", ACCEPTED.values(), ids=ACCEPTED)
def test_pair_that_only_feeds_solve_is_accepted(source):
    assert why_unpaired_source(source, "fwd") is None


@pytest.mark.parametrize(("source", "reason"), REFUSED.values(), ids=REFUSED)
def test_any_other_use_is_refused_with_its_reason(source, reason):
    assert reason in why_unpaired_source(source, "fwd")


@pytest.mark.parametrize("consumer", CONSUMERS, ids=lambda c: c.id)
def test_standin_consumers_are_accepted(consumer):
    file = STANDIN.joinpath(*consumer.module.split(".")).with_suffix(".py")
    assert why_unpaired_source(file.read_text(), consumer.function) is None


@pytest.mark.parametrize("thing", [len, str.upper, "text".upper, lambda: 0, eval("lambda: 0")],
                         ids=["builtin", "method-descriptor", "bound-method", "lambda", "without-source"])
def test_what_is_not_a_readable_plain_function_is_refused(thing):
    assert why_unpaired(thing)


def test_P15_forward_whose_module_has_only_one_of_the_two_is_refused(stack):
    source = forward(f"A = {KKT}", f"A = {SOLVE}", "return A")
    half = stack.module("half", "def chunk_scaled_dot_kkt_fwd(**_): pass\n" + source)
    assert why_unpaired(half.fwd) == "its module has no callable solve_tril"
