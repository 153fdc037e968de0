"""Inputs of the published failures, by id of ut/hostile/cases.md: values only; what must hold is in the tests.

Sizes are those that a CPU runs in seconds; `wide` multiplies heads for an accelerator. Every recipe without a
dimension of its own has K = 128 and chunks of 64, so that one compiled program serves them all.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from ut.inputs import Inputs, chunk_cumsum


def normal_keys(gen: torch.Generator, shape) -> torch.Tensor:
    return F.normalize(torch.randn(shape, generator=gen), dim=-1)


def related_keys(gen: torch.Generator, shape, cosine: float) -> torch.Tensor:
    common = F.normalize(torch.randn(shape[0], 1, shape[2], shape[3], generator=gen), dim=-1)
    return F.normalize(math.sqrt(cosine) * common + math.sqrt(1 - cosine) * normal_keys(gen, shape), dim=-1)


def uniform_keys(gen: torch.Generator, shape) -> torch.Tensor:
    return F.normalize(torch.rand(shape, generator=gen), dim=-1)


def one_axis_keys(gen: torch.Generator, shape) -> torch.Tensor:
    k = torch.zeros(shape)
    k[..., 0] = 1
    return k


def long_keys(gen: torch.Generator, shape) -> torch.Tensor:
    return 0.5 * torch.randn(shape, generator=gen)


def build(keys: Callable, step, beta, *, T: int = 128, K: int = 128, chunk_size: int = 64, seed: int = 0,
          wide: int = 1) -> Inputs:
    """step, beta: a number, or a function of (generator, shape) giving decay per token and beta."""
    gen = torch.Generator().manual_seed(seed)
    shape = (1, T, wide)

    def values(made):
        return made(gen, shape) if callable(made) else torch.full(shape, float(made))

    k, step, beta = keys(gen, (*shape, K)), values(step), values(beta)
    return Inputs(k, chunk_cumsum(step, chunk_size), beta, None, chunk_size)


def _coin(gen, shape, zeros: float, closed: float = -5.0):
    return torch.where(torch.rand(shape, generator=gen) < zeros, 0.0, closed)


def _alternating(gen, shape):
    return torch.where(torch.arange(shape[1]) % 2 == 0, -80.0, 0.0)[None, :, None].expand(shape)


def _uniform(gen, shape, low: float = 0.0, high: float = 1.0):
    return low + (high - low) * torch.rand(shape, generator=gen)


def _half_sigmoid(gen, shape):
    return torch.sigmoid(torch.rand(shape, generator=gen))


def _small_gate(gen, shape):
    return F.logsigmoid(torch.rand(shape, generator=gen)) / 16


_95 = partial(related_keys, cosine=0.95)
RECIPES: dict[str, Callable[..., Inputs]] = {
    "N02-trained_layer": partial(build, _95, -1e-4, 0.99),
    "N03-fast_decay": partial(build, _95, -20.0, 0.99),
    "N03-medium_decay": partial(build, _95, -0.05, 0.99),
    "N03-slow_decay": partial(build, _95, -1e-4, 0.99, seed=1),
    "N05-coin_flip_gates": partial(build, normal_keys, partial(_coin, zeros=0.5), _uniform),
    "N05-mostly_open_gates": partial(build, _95, partial(_coin, zeros=0.9), 0.99),
    "N06-tail_of_36_steep": partial(build, normal_keys, -20.0, _uniform, T=100),
    "N06-tail_of_1_steep": partial(build, normal_keys, -20.0, _uniform, T=65),
    "N08-measured_gate_range": partial(build, normal_keys, partial(_uniform, low=-316.0, high=-1e-4), _uniform),
    "N09-step_of_6": partial(build, _95, -6.0, 0.99, T=64),
    "N09-step_of_20": partial(build, _95, -20.0, 0.99, T=64),
    "N11-alternating_gates": partial(build, _95, _alternating, 0.99),
    "N12-falling_60_a_token": partial(build, normal_keys, -60.0, _uniform),
    "N15-beta_2_one_key": partial(build, one_axis_keys, 0.0, 2.0, T=64),
    "N15-beta_1_one_key": partial(build, one_axis_keys, 0.0, 1.0, T=64),
    "N17-uniform_keys": partial(build, uniform_keys, _small_gate, _half_sigmoid),
    "T01-tail_of_1": partial(build, _95, -1e-3, 0.9, T=65),
    "T01-tail_of_31": partial(build, _95, -1e-3, 0.9, T=95),
    "T01-tail_of_33": partial(build, _95, -1e-3, 0.9, T=97),
    "T01-tail_of_63": partial(build, _95, -1e-3, 0.9, T=127),
    "T15-six_tokens": partial(build, _95, -1e-3, 0.9, T=6),
    "T18-one_token": partial(build, normal_keys, -0.1, 0.5, T=1),
    "T18-two_tokens": partial(build, normal_keys, -0.1, 0.5, T=2),
}
