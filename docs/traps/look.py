"""Compiles a kernel for 910B2 and looks at what came out: the error, the split of vector work, ops, estimated time."""
from __future__ import annotations

import re

import torch

from mindspeed_kkt_plugin.kernels.launch import Launch
from npusim import bind, frontend, resources
from npusim.compile import compile_launch
from npusim.errors import NpusimError
from npusim.parse import parse_module
from npusim.time import estimate

TARGET = "Ascend910B2"
CORES = 24


def fp32(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def launch(kernel, args: dict, constants: dict | None = None, programs: int = CORES, **options) -> Launch:
    return Launch(kernel.fn.__name__, kernel, (programs,), args, constants or {}, options)


def compiled(one: Launch):
    return compile_launch(one, TARGET)


def outcome(one: Launch) -> str:
    """"compiles", or the compiler's first complaint."""
    try:
        compiled(one)
    except NpusimError as error:
        return _first(str(error))
    return "compiles"


def _first(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    words = ("error", "unsupported", "assert")
    best = next((line for line in lines if any(word in line.lower() for word in words)), lines[0])
    best = re.sub(r"\S*/\S*", "…", best.split(f"{TARGET}: ")[-1])
    return re.sub(r"[|`]", "'", best)[:110]


def split(one: Launch) -> str:
    """How the two vector cores divide the work."""
    return f"vector cores: {resources.measure(compiled(one)).split}"


def count(one: Launch, pattern: str) -> int:
    """How often a pattern occurs in the program."""
    return len(re.findall(pattern, compiled(one).hivm))


def microseconds(one: Launch) -> str:
    program = compiled(one)
    module = parse_module(program.hivm)
    return f"{estimate(module, program.grid, bind.arrays(program), TARGET).us:.1f} µs (estimated)"


def linalg(one: Launch) -> str:
    special = frontend.specialise(one.kernel, {**one.args, **one.constants})
    return frontend.to_linalg(special, TARGET, one.options)
