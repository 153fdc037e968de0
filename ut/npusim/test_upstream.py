"""npusim.upstream: launches recorded from a checkout; here a made-up one with the layout of MindSpeed."""
from __future__ import annotations

import os
import sys

import pytest

from npusim import plans, report
from npusim.errors import NpusimError, UnsupportedError
from npusim.isolate import call
from npusim.upstream import PACKAGES

KKT = '''
import torch
import triton
import triton.language as tl
from .utils import rows_of

@triton.heuristics({"HAS_GATE": lambda args: args["g"] is not None})
@triton.jit(do_not_specialize=["T"])
def scores_kernel(k, g, A, T, WIDTH: tl.constexpr, HAS_GATE: tl.constexpr):
    place = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(A + place, tl.load(g + place))

@triton.autotune(configs=[triton.Config({"WIDTH": 8})], key=["T"])
@triton.jit
def never_used(A, T, WIDTH: tl.constexpr):
    tl.store(A, 0.0)

def chunk_scaled_dot_kkt_fwd(k, g=None, beta=None, cu_seqlens=None, chunk_size=64, output_dtype=torch.float32):
    B, T, H, K = k.shape
    A = torch.empty(B, T, H, chunk_size, device=k.device, dtype=output_dtype)
    g = g.transpose(1, 2).contiguous()
    scores_kernel[lambda meta: (rows_of(T) // meta["WIDTH"],)](k=k, g=g, A=A, T=T, WIDTH=16, multibuffer=False)
    return A
'''
SOLVE = '''
import functools
import torch
import triton
import triton.language as tl

@triton.jit
def solve_kernel(A, Ai, T, H: tl.constexpr):
    tl.store(Ai + tl.program_id(0), tl.load(A + tl.program_id(0)))

def guarded(function):
    @functools.wraps(function)
    def inside_a_device_context(*args, **kwargs):
        raise AssertionError("asks for a device")
    return inside_a_device_context

@guarded
def solve_tril(A, cu_seqlens=None, output_dtype=torch.float):
    Ai = torch.zeros_like(A, dtype=output_dtype)
    solve_kernel[A.shape[1], A.shape[2]](A, Ai, A.shape[1], H=A.shape[2])
    return Ai
'''


def checkout(folder, package: str):
    home = folder / package.replace(".", "/")
    home.mkdir(parents=True)
    for parent in [home, *home.parents][:package.count(".") + 1]:
        (parent / "__init__.py").write_text("raise AssertionError('the package was initialised')\n")
    (home / "chunk_scaled_dot_kkt.py").write_text(KKT)
    (home / "solve_tril.py").write_text(SOLVE)
    (home / "utils.py").write_text("def rows_of(T):\n    return T\n")
    return folder


def recorded(tree: str) -> dict:
    plan = plans.make("upstream", plans.Shape(1, 64, 2, 2, 32), mindspeed_src=tree)
    return {"launches": [(one.name, one.grid, sorted(one.args), one.constants, one.options) for one in plan.launches],
            "torch": plan.torch_ops, "out": (tuple(plan.output.shape), str(plan.output.dtype)),
            "left": [name for name in sys.modules if name.split(".")[0].startswith("mindspeed") and
                     not name.startswith("mindspeed_kkt_plugin")]}


@pytest.mark.parametrize("package", PACKAGES)
def test_launches_are_recorded_in_order_with_their_arguments(tmp_path, package):
    found = call(recorded, str(checkout(tmp_path, package)))
    assert found["launches"] == [
        ("scores_kernel", (4,), ["A", "T", "g", "k"], {"WIDTH": 16, "HAS_GATE": True}, {"multibuffer": False}),
        ("solve_kernel", (64, 2), ["A", "Ai", "T"], {"H": 2}, {})]
    assert found["out"] == ((1, 64, 2, 64), "torch.bfloat16")


def test_what_torch_runs_between_is_listed(tmp_path):
    transpose, fill = call(recorded, str(checkout(tmp_path, PACKAGES[1])))["torch"]
    assert (transpose.read_bytes, transpose.written_bytes) == (64 * 2 * 4, 64 * 2 * 4), "g, fp32"
    assert (fill.read_bytes, fill.written_bytes) == (0, 64 * 2 * 64 * 2), "zeros in bf16"


def test_a_torch_op_without_a_price_is_named(tmp_path):
    tree = checkout(tmp_path, PACKAGES[0])
    module = tree / PACKAGES[0].replace(".", "/") / "solve_tril.py"
    module.write_text(SOLVE.replace("return Ai", "return Ai.cumsum(1)"))
    with pytest.raises(UnsupportedError, match="torch op cumsum between the launches is not priced"):
        call(recorded, str(tree))


def test_nothing_of_the_checkout_stays_imported(tmp_path):
    assert call(recorded, str(checkout(tmp_path, PACKAGES[0])))["left"] == []


def test_a_module_that_cannot_be_imported_is_named(tmp_path):
    tree = checkout(tmp_path, PACKAGES[0])
    (tree / PACKAGES[0].replace(".", "/") / "utils.py").write_text("import no_such_package\n")
    with pytest.raises(NpusimError, match="cannot be imported here: No module named 'no_such_package'"):
        call(recorded, str(tree))


@pytest.mark.skipif("MINDSPEED_SRC" not in os.environ, reason="MINDSPEED_SRC names no checkout of MindSpeed(-MM)")
def test_the_named_checkout_is_recorded():
    found = call(recorded, os.environ["MINDSPEED_SRC"])
    assert len(found["launches"]) >= 2 and found["out"][1] == "torch.bfloat16"


@pytest.mark.skipif("MINDSPEED_SRC" not in os.environ, reason="MINDSPEED_SRC names no checkout of MindSpeed-MM")
@pytest.mark.parametrize(("shape", "published_us"), report.PUBLISHED_US, ids=lambda value: str(value))
def test_published_device_times_are_met_within_a_quarter(shape, published_us):
    """Of MindSpeed-MM's four kernels with torch's fills and transposes; the figures are docs/en/npusim.md's."""
    job = ("upstream", shape, "bf16", "Ascend910B2", os.environ["MINDSPEED_SRC"], {})
    assert call(report.total_us, job) == pytest.approx(published_us, rel=report.TOLERANCE)
