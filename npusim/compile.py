"""Compiles a `Launch` for an Ascend target and keeps results on disk by content. The entry point of npusim.

How a kernel becomes linalg is frontend.py, how the NPU compiler is run is backend.py.
"""
from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import backend, frontend
from .frontend import Argument

FORMAT = 1  # raise when what is stored, or how it is made, changes


@dataclass(frozen=True)
class Compiled:
    """A launch with its program.

    name: the launch's; kernel: the Triton function's; hivm: final HIVM text (memory planned, syncs placed);
    args: run-time arguments in the order of the device function's visible parameters, which follow the hidden ones
    (marked `hacc.arg_type`) and precede grid x, y, z; grid: programs per axis, padded to three;
    constants: everything compiled in; messages: what the compiler said besides the program.
    """

    name: str
    kernel: str
    target: str
    hivm: str
    args: tuple[Argument, ...]
    grid: tuple[int, int, int]
    constants: dict[str, Any]
    options: dict[str, Any]
    messages: tuple[str, ...]

    @property
    def scalars(self) -> tuple[Argument, ...]:
        """The run-time scalar arguments, in order."""
        return tuple(argument for argument in self.args if argument.kind == "scalar")

    @property
    def retries(self) -> tuple[str, ...]:
        """What the compiler switched off by itself to make the kernel fit: the program is not the one asked for."""
        return tuple(message for message in self.messages if "retrying" in message)


def compile_launch(launch, target: str = "Ascend910B2", options: dict[str, Any] | None = None) -> Compiled:
    """Compile one launch (see mindspeed_kkt_plugin.kernels.launch.Launch). `options` override the launch's own.

    Tensors may be on the meta device. Raises NpuCompileError when the kernel does not fit or does not lower,
    UnsupportedError for an unknown target, option or argument type, NpusimError for a kernel of the interpreter.
    """
    special = frontend.specialise(launch.kernel, {**launch.args, **launch.constants})
    # As in the launcher, what @triton.jit(bishengir_option=…) says wins over the launch; the caller's wish comes last.
    options = {**launch.options, **(special.kernel.bishengir_option or {}), **(options or {})}
    program = _program(special, target, options)
    return Compiled(name=launch.name, kernel=special.kernel.__name__, target=target, hivm=program.hivm,
                    args=special.args, grid=_grid(launch, special), constants=special.constants, options=options,
                    messages=program.messages)


def _grid(launch, special) -> tuple[int, int, int]:
    grid = launch.grid
    if callable(grid):
        grid = grid({argument.name: argument.value for argument in special.args} | special.constants)
    grid = tuple(int(extent) for extent in grid)
    return (*grid, 1, 1)[:3]


def _program(special, target: str, options: dict[str, Any]) -> backend.BackendOutput:
    backend.flags(target, options)  # unknown targets and options fail before any work
    path = cache_folder() / f"{special.kernel.__name__}-{_key(special, target, options)}.json"
    try:
        stored = json.loads(path.read_text())
        return backend.BackendOutput(stored["hivm"], tuple(stored["messages"]))
    except (OSError, ValueError, KeyError):
        pass  # not stored yet, or cut off: compile
    linalg = frontend.to_linalg(special, target, options)
    program = backend.run(linalg, special.kernel.__name__, target, options)
    _store(path, {"hivm": program.hivm, "messages": program.messages})
    return program


def cache_folder() -> Path:
    """`$NPUSIM_CACHE`, else `$XDG_CACHE_HOME/npusim`, else `.npusim_cache` in the working directory."""
    if os.environ.get("NPUSIM_CACHE"):
        return Path(os.environ["NPUSIM_CACHE"])
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "npusim"
    return Path(".npusim_cache")


@lru_cache(maxsize=1)
def compiler_versions() -> str:
    """Versions of both halves of the compiler; a binary from PATH is told apart by its size and time."""
    path = Path(backend.compiler_path())
    stat = path.stat()
    return f"triton-ascend {importlib.metadata.version('triton-ascend')} {path.name} {stat.st_size} {stat.st_mtime_ns}"


def _key(special, target: str, options: dict[str, Any]) -> str:
    content = [FORMAT, compiler_versions(), target, special.kernel.cache_key,
               sorted((name, str(value)) for (name, _), (value, _) in special.kernel.used_global_vals.items()),
               list(special.signature.items()),
               sorted((name, repr(value)) for name, value in special.constants.items()),
               special.attrs.hash(), sorted((name, repr(value)) for name, value in options.items())]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]


def _store(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(content, file)
    os.replace(file.name, path)  # complete or absent, also with several processes
