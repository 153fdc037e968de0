"""Whole plans for the tests of npusim's core: compiled and run in the worker, or interpreted in this process."""
from __future__ import annotations

import numpy as np

from npusim import bind, check, compile, plans
from npusim.parse import parse_module
from npusim.plans import Shape
from npusim.time import estimate


def run_plan(op: str, shape: str, dtype: str, offsets=None, regime: str = "random"):
    """(Outcome, output as fp32) of a plan's compiled launches on seeded data."""
    plan = _plan(op, shape, dtype, offsets, regime)
    launches = [compile.compile_launch(launch) for launch in plan.launches]
    outcome = check.run(plan, launches, "Ascend910B2")
    return outcome, plan.output.float().numpy()


def interpreted_plan(op: str, shape: str, dtype: str, offsets=None, regime: str = "random") -> np.ndarray:
    """The same plan on the same data under Triton's interpreter."""
    plan = _plan(op, shape, dtype, offsets, regime)
    for launch in plan.launches:
        launch.run()
    return plan.output.float().numpy()


def time_plan(op: str, shape: str, dtype: str = "bf16"):
    """Timing per launch of a plan on meta tensors."""
    plan = plans.make(op, Shape.parse(shape), dtype)
    launches = [compile.compile_launch(launch) for launch in plan.launches]
    return {one.name: estimate(parse_module(one.hivm), one.grid, bind.arrays(one)) for one in launches}


def _plan(op: str, shape: str, dtype: str, offsets, regime: str):
    offsets = None if offsets is None else list(offsets)
    return plans.make(op, Shape.parse(shape), dtype, cu_seqlens=offsets, data=True, regime=regime)


def launch_of(op: str, shape: str, name: str, dtype: str = "bf16") -> dict:
    """Text, grid and arrays of one launch of a plan on seeded data; launches before it have not run."""
    plan = _plan(op, shape, dtype, None, "random")
    one = compile.compile_launch(next(launch for launch in plan.launches if launch.name == name))
    return {"hivm": one.hivm, "grid": one.grid, "args": bind.arrays(one)}
