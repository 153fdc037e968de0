"""Published numeric failures: gates and inverses (ids N.. of cases.md) against float64 forward substitution."""
from __future__ import annotations

from functools import partial

import pytest
import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin import reference
from ut.accuracy import assert_accurate, exact, worst_chunk
from ut.hostile import recipes
from ut.hostile.recipes import RECIPES, build
from ut.inputs import Inputs, make_inputs

DTYPES = [pytest.param(torch.float32, id="fp32"), pytest.param(torch.bfloat16, id="bf16")]


def made(recipe, device, dtype=torch.float32) -> Inputs:
    inputs = recipe(wide=1 if device == "cpu" else 16)
    return Inputs(inputs.k.to(device, dtype), inputs.g.to(device), inputs.beta.to(device), None, inputs.chunk_size)


def hold(inputs: Inputs, recipe: str = "") -> torch.Tensor:
    out = fused(*inputs.args)
    assert_accurate(out, exact(inputs), inputs, "beta2_repeated" if "beta_2" in recipe else "random")
    return out


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes(recipe, device):
    hold(made(RECIPES[recipe], device), recipe)


@pytest.mark.parametrize("recipe", ["N02-trained_layer", "N05-mostly_open_gates", "N15-beta_2_one_key"])
def test_recipes_in_bf16(recipe, device):
    hold(made(RECIPES[recipe], device, torch.bfloat16), recipe)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_on_the_torch_path(recipe, device, monkeypatch):
    monkeypatch.setenv("MINDSPEED_KKT_PATH", "torch")
    hold(made(RECIPES[recipe], device), recipe)


def test_N02_recipe_is_as_hard_as_the_trained_layer():
    inputs = RECIPES["N02-trained_layer"]()
    assert reference.kkt(*inputs.args).abs().sum(-1).max() >= 37


def test_N03_error_does_not_grow_as_the_decay_slows(device):
    errors = []
    for step in (-20.0, -0.05, -1e-4):
        inputs = made(partial(build, partial(recipes.related_keys, cosine=0.95), step, 0.99, T=64), device)
        errors.append(worst_chunk(fused(*inputs.args), exact(inputs), inputs))
    assert errors[-1] <= 100 * max(errors[0], torch.finfo(torch.float32).eps / 2), errors


@pytest.mark.parametrize("recipe", ["N06-tail_of_36_steep", "N06-tail_of_1_steep", "N12-falling_60_a_token"])
def test_N06_N12_steep_gates_leave_the_identity(recipe, device):
    inputs = made(RECIPES[recipe], device)
    out = fused(*inputs.args)
    place = torch.arange(out.shape[1], device=device) % 64
    eye = (place[:, None] == torch.arange(64, device=device)).float()[None, :, None]
    limit = 1e-20 if recipe.startswith("N12") else 1e-8
    assert (out - eye).abs().max() < limit


def test_N12_rising_gates_follow_the_documented_clamp(device):
    """+1 a token: differences to 63, of which the operator takes 50, as MindSpeed's does. Never NaN."""
    hold(made(partial(build, recipes.normal_keys, 1.0, 0.5, T=64), device))


@pytest.mark.parametrize("seed", range(2))
def test_N14_keys_of_length_5_are_accurate_though_the_inverse_is_huge(seed, device):
    inputs = made(partial(build, recipes.long_keys, 0.0, 0.5, T=64, seed=seed), device)
    truth = exact(inputs)
    assert truth.abs().max() > 1e8, "the recipe has lost its point"
    assert worst_chunk(fused(*inputs.args), truth, inputs) < 1e-4
    assert fused(*inputs.args, output_dtype=torch.bfloat16).isfinite().all()


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_N15_beta_up_to_2_on_one_key_has_whole_numbers(beta, device):
    inputs = made(RECIPES[f"N15-beta_{beta:.0f}_one_key"], device)
    i, j = torch.arange(64, device=device)[:, None], torch.arange(64, device=device)[None, :]
    below = torch.where((i - j) % 2 == 1, -2.0, 2.0) if beta == 2 else -(i - j == 1).float()
    expected = torch.where(i > j, below, (i == j).float())
    assert torch.equal(fused(*inputs.args)[0, :, 0], expected)


@pytest.mark.parametrize("K", [60, 64, 100, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_N17_strongly_correlated_keys_of_odd_widths(K, dtype, device):
    keys, step, beta = recipes.uniform_keys, recipes._small_gate, recipes._half_sigmoid
    hold(made(partial(build, keys, step, beta, T=40, K=K, chunk_size=32), device, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounded", ["g", "beta", "g and beta"])
def test_N18_N20_16_bit_gates_mean_their_values_and_nothing_is_rounded_twice(rounded, dtype, device):
    inputs = make_inputs("cosine_95", T=32, H=1, K=32, chunk_size=32, dtype=dtype, device=device)
    g = inputs.g.bfloat16() if "g" in rounded.split() else inputs.g
    beta = inputs.beta.bfloat16() if "beta" in rounded else inputs.beta
    out = fused(inputs.k, g, beta, None, 32)
    assert torch.equal(out, fused(inputs.k, g.float(), beta.float(), None, 32))


def test_N20_float32_beta_is_not_rounded_behind_the_callers_back(device):
    inputs = make_inputs("cosine_95", T=32, H=1, K=32, chunk_size=32, device=device)
    assert (inputs.beta.bfloat16() != inputs.beta).any()
    coarse = fused(inputs.k, inputs.g, inputs.beta.bfloat16(), None, 32)
    assert not torch.equal(coarse, hold(inputs))


def test_N21_gates_are_natural_logarithms(device):
    k = torch.zeros(1, 2, 1, 16, device=device)
    k[..., 0] = 1
    g = torch.tensor([-0.1, -0.2], device=device)[None, :, None]
    out = fused(k, g, torch.full_like(g, 0.5), None, 16)
    assert -out[0, 1, 0, 0].item() == pytest.approx(0.4524, abs=1e-4)  # .4665 or .4328 would be a base of 2


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("bad", [float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("where", ["k", "g", "beta"])
def test_N23_a_bad_token_spoils_nothing_outside_its_chunk_and_head_and_no_earlier_tile(where, bad, device):
    inputs = make_inputs("random", B=2, T=96, H=2, K=16, chunk_size=32, device=device)
    clean = fused(*inputs.args)
    getattr(inputs, where)[1, 52, 0] = bad  # second chunk, its second tile of 16
    out = fused(*inputs.args)
    kept = torch.ones(2, 96, 2, dtype=torch.bool, device=device)
    kept[1, 48:64, 0] = False
    assert torch.equal(out[kept], clean[kept])
    if bad != bad:
        assert out[1, 52, 0].isnan().any(), "the fault must be visible"
