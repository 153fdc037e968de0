"""Run a kernel module's plan as the Ascend compiler emits it, executed on the CPU by npusim, and hold it to the bounds.

Call `check` through `npusim.isolate.call`: it needs a process without Triton's interpreter.
"""
from __future__ import annotations

import importlib

import torch

from mindspeed_kkt_plugin.varlen import prepare_chunk_indices
from npusim import bind, plans, resources
from npusim.compile import compile_launch
from npusim.execute import run as execute
from npusim.parse import parse_module
from ut.accuracy import assert_accurate, exact
from ut.inputs import Inputs, make_inputs

CORES = 2  # few programs, so that each runs its task loop several times


def check(
    module: str, regime: str = "random", target: str = "Ascend910B2", output_dtype: torch.dtype | None = None,
    head_first: bool = False, output_head_first: bool = False, **shape,
) -> list[str]:
    """Names of the kernels that ran. Raises AssertionError on a finding (race, overrun, deadlock) or a missed bound."""
    return check_inputs(module, make_inputs(regime, **shape), regime, target, output_dtype, head_first,
                        output_head_first)


def check_inputs(
    module: str, inputs: Inputs, regime: str = "random", target: str = "Ascend910B2",
    output_dtype: torch.dtype | None = None, head_first: bool = False, output_head_first: bool = False,
    num_cores: int = CORES,
) -> list[str]:
    """The same for inputs made elsewhere; `regime` only names the bound."""
    out, names = run(module, inputs, target, output_dtype, head_first, output_head_first, num_cores)
    assert_accurate(out.transpose(1, 2) if output_head_first else out, exact(inputs), inputs, regime)
    return names


def run(module: str, inputs: Inputs, target: str, output_dtype, head_first: bool, output_head_first: bool,
        num_cores: int) -> tuple[torch.Tensor, list[str]]:
    """The result and the names of the kernels that ran. Raises AssertionError on a finding."""
    k, g, beta = (x.transpose(1, 2).contiguous() if head_first and x is not None else x
                  for x in (inputs.k, inputs.g, inputs.beta))
    table = None if inputs.cu_seqlens is None else prepare_chunk_indices(inputs.cu_seqlens, inputs.chunk_size)
    torch.use_deterministic_algorithms(True)  # torch.empty gives NaN: a row nobody writes is seen
    out, launches = importlib.import_module(module).plan(
        k, g, beta, inputs.cu_seqlens, table, chunk_size=inputs.chunk_size,
        output_dtype=output_dtype or inputs.k.dtype, head_first=head_first, output_head_first=output_head_first,
        num_cores=num_cores)
    for launch in launches:
        compiled = compile_launch(launch, target)
        result = execute(parse_module(compiled.hivm), compiled.grid, bind.arrays(compiled), target)
        assert not result.findings, f"{launch.name}: {[str(finding) for finding in result.findings[:3]]}"
    return out, [launch.name for launch in launches]


def results_by_width(regime: str = "random", **shape) -> dict[int, torch.Tensor]:
    """The fused Ascend kernel's result at each of its widths (lanes a task), of the same inputs."""
    ascend = importlib.import_module("mindspeed_kkt_plugin.kernels.ascend")
    inputs, rounds, found = make_inputs(regime, **shape), ascend.ROUNDS, {}
    try:
        for lanes in rounds:
            ascend.ROUNDS = {lanes: rounds[lanes]}
            ascend._tasks.cache_clear()
            found[lanes], _ = run(ascend.__name__, inputs, "Ascend910B2", inputs.k.dtype, False, False, CORES)
    finally:
        ascend.ROUNDS = rounds
        ascend._tasks.cache_clear()
    return found


def resources_by_width(target: str, K: int, dtype: str) -> dict[int, resources.Resources]:
    """What the fused Ascend kernel's program needs at each of its widths."""
    ascend = importlib.import_module("mindspeed_kkt_plugin.kernels.ascend")
    found = {}
    for T, H in ((2048, 4), (8192, 8), (16384, 8)):
        launch, = plans.make(ascend.__name__, plans.Shape(1, T, H, H, K), dtype, target=target).launches
        found[launch.constants["LANES"]] = resources.measure(compile_launch(launch, target))
    return found
