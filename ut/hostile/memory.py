"""Hostile memory for tests: inputs amid NaN, launches whose every tensor stands between guards, far-apart views.

Values and bounds are in recipes.py and ut/accuracy.py.
"""
from __future__ import annotations

from dataclasses import replace

import torch

GUARD = 4096  # elements before and after


def poisoned(x: torch.Tensor | None, at_end: bool = False) -> torch.Tensor | None:
    """x as a view whose neighbours, every other token included, are NaN; `at_end`: x ends its allocation."""
    if x is None:
        return None
    shape = (x.shape[0] + 1, 2 * x.shape[1] + (0 if at_end else 130), *x.shape[2:])
    host = torch.full(shape, float("nan"), dtype=x.dtype, device=x.device)
    view = host[1:, 1 if at_end else 65:][:, :2 * x.shape[1]:2]
    return view.copy_(x)


def far(x: torch.Tensor, axis: int, distance: int) -> torch.Tensor:
    """x with `distance` elements between neighbours along `axis`; the memory in between is reserved, never touched.

    As much is reserved before it (8 GiB of addresses for three in 16 bits), so that an offset that wrapped to negative
    reads zeros instead of crashing.
    """
    strides, size = [0] * x.dim(), 1
    for i in reversed(range(x.dim())):
        strides[i], size = (distance, size) if i == axis else (size, size * x.shape[i])
    assert size <= distance
    reach = distance * (x.shape[axis] - 1)
    memory = torch.empty(2 * reach + size, dtype=x.dtype, device=x.device)
    return memory.as_strided(x.shape, strides, reach).copy_(x)


class Guarded:
    """Runs a plan with every tensor moved between guards; `check` sees any byte written outside the result."""

    def __init__(self, out: torch.Tensor, launches):
        self._homes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.launches = [replace(launch, args={name: self._move(x) for name, x in launch.args.items()})
                         for launch in launches]
        self.out = self._move(out)

    def _move(self, x):
        if not isinstance(x, torch.Tensor):
            return x
        storage = x.untyped_storage()
        if storage.data_ptr() not in self._homes:
            flat = torch.empty(0, dtype=x.dtype, device=x.device).set_(storage)
            home = torch.full((flat.numel() + 2 * GUARD,), 77, dtype=x.dtype, device=x.device)
            home[GUARD:-GUARD] = flat
            self._homes[storage.data_ptr()] = home, flat
        home = self._homes[storage.data_ptr()][0]
        return home.as_strided(x.shape, x.stride(), x.storage_offset() + GUARD)

    def check(self, inputs) -> None:
        """inputs: the tensors that the plan was made for, which must hold what they held."""
        for home, _ in self._homes.values():
            assert (home[:GUARD] == 77).all() and (home[-GUARD:] == 77).all(), "written outside a tensor"
        for x in inputs:
            if x is not None and x.untyped_storage().data_ptr() in self._homes:
                home, flat = self._homes[x.untyped_storage().data_ptr()]
                kept = home[GUARD:-GUARD]
                assert torch.equal(kept.view(torch.uint8), flat.view(torch.uint8)), "an input was overwritten"
