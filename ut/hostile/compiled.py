"""Hostile inputs for the compiled Ascend programs, run in a process without the interpreter (see ut/compiled.py).

Everything here is called by test_compiled.py through `npusim.isolate.call`, by name.
"""
from __future__ import annotations

import importlib

import torch

from mindspeed_kkt_plugin.varlen import prepare_chunk_indices
from npusim import bind
from npusim.compile import compile_launch
from npusim.execute import run as execute
from npusim.parse import parse_module
from ut.compiled import check_inputs
from ut.hostile.memory import poisoned
from ut.hostile.recipes import RECIPES, build, long_keys
from ut.inputs import Inputs, make_inputs


def recipe(module: str, name: str, dtype: torch.dtype) -> list[str]:
    inputs = RECIPES[name]()
    inputs.k = inputs.k.to(dtype)
    return check_inputs(module, inputs, "beta2_repeated" if "beta_2" in name else "random")


def tasks(module: str, count: int, cores: int) -> list[str]:
    """`count` chunks for `cores` cube cores."""
    return check_inputs(module, make_inputs("cosine_50", B=count, T=9, H=1), num_cores=cores)


def poison(module: str, cu_seqlens: list[int] | None, T: int) -> list[str]:
    inputs = make_inputs("cosine_95", T=T, H=2, HV=4, cu_seqlens=cu_seqlens)
    return check_inputs(module, Inputs(*(poisoned(x) for x in inputs.args[:3]), *inputs.args[3:]))


def run(module: str, inputs: Inputs, cores: int = 2) -> tuple[torch.Tensor, list]:
    """The result and every finding; nothing is asserted."""
    torch.use_deterministic_algorithms(True)
    table = None if inputs.cu_seqlens is None else prepare_chunk_indices(inputs.cu_seqlens, inputs.chunk_size)
    out, launches = importlib.import_module(module).plan(
        *inputs.args[:4], table, chunk_size=inputs.chunk_size, output_dtype=inputs.k.dtype, head_first=False,
        output_head_first=False, num_cores=cores)
    findings = []
    for launch in launches:
        compiled = compile_launch(launch)
        findings += execute(parse_module(compiled.hivm), compiled.grid, bind.arrays(compiled)).findings
    return out, [str(finding) for finding in findings]


def huge_inverse(module: str) -> tuple[torch.Tensor, list]:
    return run(module, build(long_keys, 0.0, 0.5, T=64))


def bad_token(module: str, where: str, bad: float, T: int = 160, H: int = 2, K: int = 128,
              ) -> tuple[torch.Tensor, torch.Tensor]:
    """Without and with a bad value at token 100 of sample 1, head 0."""
    inputs = make_inputs("random", B=2, T=T, H=H, K=K)
    clean, _ = run(module, inputs)
    getattr(inputs, where)[1, 100, 0] = bad
    return clean, run(module, inputs)[0]


def repeats(module: str, count: int) -> set[bytes]:
    inputs = make_inputs("cosine_95", T=100, H=1, HV=2, cu_seqlens=[0, 64, 64, 100])
    return {run(module, inputs)[0].numpy().tobytes() for _ in range(count)}


def grids(module: str, shapes: list[tuple], cores: int) -> list[tuple[int, ...]]:
    """Grids of every launch for meta tensors of these (B, T, H, HV, K, chunk_size)."""
    found = []
    for B, T, H, HV, K, chunk_size in shapes:
        k = torch.empty(B, T, H, K, dtype=torch.bfloat16, device="meta")
        gate = torch.empty(B, T, HV, device="meta")
        _, launches = importlib.import_module(module).plan(
            k, gate, gate, None, None, chunk_size=chunk_size, output_dtype=torch.bfloat16, head_first=False,
            output_head_first=False, num_cores=cores)
        found += [launch.grid for launch in launches]
    return found


def constants(module: str, lengths: list[int]) -> int:
    """How many programs these lengths take: distinct (kernel, constants)."""
    found = set()
    for T in lengths:
        k, gate = torch.empty(1, T, 2, 64, device="meta"), torch.empty(1, T, 2, device="meta")
        _, launches = importlib.import_module(module).plan(
            k, gate, gate, None, None, chunk_size=64, output_dtype=torch.float32, head_first=False,
            output_head_first=False, num_cores=24)
        found |= {(launch.name, tuple(launch.constants.items())) for launch in launches}
    return len(found)
