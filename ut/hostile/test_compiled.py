"""The numeric part of cases.md, and its Ascend rows (A..), on the programs that the NPU compiler emits.

npusim executes them on the CPU and reports races, overruns and deadlocks; accuracy is that of the emitted program.
Cases that need a program of their own are marked slow: the compiler takes ten seconds for each.
"""
from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton.backends.ascend", reason="needs triton-ascend (pip install triton-ascend==3.2.0)")
pytest.importorskip("ascendnpuir", reason="needs the NPU compiler (pip install ascendnpu-ir==1.2.0)")
from npusim.isolate import call  # noqa: E402
from ut import compiled as standard  # noqa: E402
from ut.hostile import compiled  # noqa: E402
from ut.hostile.recipes import RECIPES  # noqa: E402

MODULES = [pytest.param("mindspeed_kkt_plugin.kernels.ascend", id="ascend"),
           pytest.param("mindspeed_kkt_plugin.unfused", id="two_call")]
pytestmark = pytest.mark.parametrize("module", MODULES)
V01 = [0, 65, 116, 181, 245, 309, 374, 406, 422, 429, 433, 438, 439]  # mixed tails, as in test_packing.py


@pytest.fixture(autouse=True)
def on_the_cpu(device):
    if device != "cpu":
        pytest.skip(f"runs on the CPU, not on {device}")


@pytest.mark.parametrize("name", RECIPES)
def test_recipes(name, module):
    assert call(compiled.recipe, module, name, torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["N02-trained_layer", "N05-mostly_open_gates", "N15-beta_2_one_key",
                                  "T01-tail_of_33"])
def test_recipes_in_bf16(name, module):
    assert call(compiled.recipe, module, name, torch.bfloat16)


def test_N14_keys_of_length_5_stay_finite_and_accurate(module):
    out, findings = call(compiled.huge_inverse, module)
    truth = standard.exact(compiled.build(compiled.long_keys, 0.0, 0.5, T=64))
    assert not findings and truth.abs().max() > 1e8
    assert ((out - truth).norm() / truth.norm()).item() < 1e-4


SPOILS = [(where, bad) for where in ("g", "k", "beta") for bad in (float("nan"), float("inf"))]


@pytest.mark.parametrize("where,bad", [SPOILS[0], *(pytest.param(*one, marks=pytest.mark.slow) for one in SPOILS[1:])])
def test_N23_a_bad_token_spoils_its_own_chunk_and_head_only(where, bad, module):
    clean, out = call(compiled.bad_token, module, where, bad)
    kept = torch.ones(2, 160, 2, dtype=torch.bool)
    kept[1, 64:128, 0] = False
    assert torch.equal(out[kept], clean[kept])
    # The clamp's vmax and vmin drop a NaN as npusim models them; the chain has no second guard for g.
    if module.endswith("ascend") or where != "g":
        assert not out[~kept].isfinite().all()


@pytest.mark.slow
def test_A02_R01_repeats_are_bit_identical(module):
    assert len(call(compiled.repeats, module, 5)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("T,offsets", [(100, None), (65, None), (150, [0, 0, 70, 71, 135])], ids=str)
def test_A03_A05_T04_tails_of_strided_tensors_amid_nan(T, offsets, module):
    assert call(compiled.poison, module, offsets, T)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["Ascend910B2", "Ascend910_9382"], ids=["A2", "A3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_A06_H04_K_of_256_fits_and_is_accurate(dtype, target, module):
    assert call(standard.check, module, "cosine_95", target, T=70, H=1, K=256, dtype=dtype)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])  # 1, cores - 1, cores, cores + 1, and a third round
def test_A08_L10_any_number_of_tasks(count, module):
    assert call(compiled.tasks, module, count, 3)


@pytest.mark.slow
@pytest.mark.parametrize("head_first", [False, True], ids=["token_first", "head_first"])
def test_A09_V01_mixed_tails_packed_in_either_layout(head_first, module):
    assert call(standard.check, module, "cosine_50", T=440, H=1, HV=2, K=32, cu_seqlens=V01, dtype=torch.bfloat16,
                head_first=head_first, output_head_first=head_first)


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [[0, 0, 64], [0, 64, 64, 64, 130], [0, 0, 0, 1]], ids=str)
def test_V03_empty_sequences(bounds, module):
    assert call(standard.check, module, "cosine_50", T=bounds[-1] + 3, H=1, K=32, cu_seqlens=bounds)


@pytest.mark.slow
@pytest.mark.parametrize("H,HV", [(2, 4), (1, 8), (2, 6)], ids=str)
def test_H01_grouped_heads(H, HV, module):
    assert call(standard.check, module, "cosine_50", T=70, H=H, HV=HV, K=32)


def test_L04_L05_no_grid_comes_near_65536_programs(module):
    shapes = [(1, 131072, 4, 32, 128, 64), (1, 131008, 4, 32, 128, 64), (16, 16384, 16, 16, 64, 64)]
    if module.endswith("unfused"):
        shapes.append((16, 16384, 16, 16, 64, 32))
    for grid in call(compiled.grids, module, shapes, 24):
        assert grid[0] <= 48 and all(extent == 1 for extent in grid[1:])


def test_R09_A12_lengths_share_programs(module):
    """Fused: by chunks, and by heads with and without tails. Two calls: kkt, leaves and two merges."""
    assert call(compiled.constants, module, [112, 148, 205, 311, 1, 16, 17, 1024, 5000]) <= 4
