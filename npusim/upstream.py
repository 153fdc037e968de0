"""Reads MindSpeed's own two-call chain from a checkout and records the launches it makes, without making them.

The checkout is read where it lies; nothing of it is copied. The plugin's own launches are in plans.py.
"""
from __future__ import annotations

import importlib
import sys
import types
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from mindspeed_kkt_plugin.kernels.launch import Launch

from .errors import NpusimError
from .frontend import require_triton

# Where each upstream tree keeps the two operators, newest layout first.
PACKAGES = ("mindspeed_mm.fsdp.ops.gdn.triton", "mindspeed.ops.triton")


@dataclass(frozen=True)
class Captured:
    """launches: in order; output: what they fill; package: which upstream it was."""

    package: str
    output: torch.Tensor
    launches: tuple[Launch, ...]


class _NoDevice:
    """Stands in for Triton's driver while the modules are imported: autotuners ask for one and do not use it."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cpu", "none", 0)

    def get_benchmarker(self):
        def refuse(*_args, **_kwargs):
            raise NpusimError("an upstream kernel is autotuned: there is no device to tune on")

        return refuse


def find_package(tree: Path) -> str:
    """Dotted name of the package that holds `solve_tril` in `tree`; NpusimError when it is neither MindSpeed nor MM."""
    for package in PACKAGES:
        if (tree / package.replace(".", "/") / "solve_tril.py").is_file():
            return package
    wanted = ", ".join(package.replace(".", "/") + "/solve_tril.py" for package in PACKAGES)
    raise NpusimError(f"--mindspeed-src {tree}: neither MindSpeed nor MindSpeed-MM (looked for {wanted})")


def capture_chain(tree: str | Path, k, g, beta, cu_seqlens, *, chunk_size: int = 64) -> Captured:
    """Record what `solve_tril(chunk_scaled_dot_kkt_fwd(...))` of the checkout launches for these tensors (meta or CPU).

    k [B,T,H,K], g and beta [B,T,H]; these kernels take one head count only (HV == H).
    """
    tree = Path(tree).resolve()
    if g.shape[2] != k.shape[2]:
        raise NpusimError(f"upstream's chain takes HV == H, got H={k.shape[2]}, HV={g.shape[2]}")
    package = find_package(tree)
    with _imported(tree, package) as load:
        kkt = load("chunk_scaled_dot_kkt").chunk_scaled_dot_kkt_fwd
        solve = load("solve_tril").solve_tril
        # Upstream's input guard selects a device; underneath it the function is the same.
        kkt, solve = (getattr(function, "__wrapped__", function) for function in (kkt, solve))
        launches: list[Launch] = []
        with _recording(launches):
            scores = kkt(k=k, g=g, beta=beta, cu_seqlens=cu_seqlens, chunk_size=chunk_size, output_dtype=torch.float32)
            output = solve(scores, cu_seqlens=cu_seqlens, output_dtype=k.dtype)
    return Captured(package, output, tuple(launches))


@contextmanager
def _imported(tree: Path, package: str):
    """Import single modules of `package` with its parents as bare namespaces, so that no `__init__` runs."""
    require_triton()
    from triton.runtime.driver import driver

    names = [package[:end] for end in [*(i for i, char in enumerate(package) if char == "."), len(package)]]
    before = dict(sys.modules)
    driver.set_active(_NoDevice())
    try:
        for name in names:
            module = types.ModuleType(name)
            module.__path__ = [str(tree / name.replace(".", "/"))]
            sys.modules[name] = module
        importlib.invalidate_caches()
        yield lambda name: importlib.import_module(f"{package}.{name}")
    except ImportError as error:
        raise NpusimError(f"--mindspeed-src {tree}: {package} cannot be imported here: {error}") from error
    finally:
        driver.reset_active()
        root = names[0]
        for name in [name for name in sys.modules if name == root or name.startswith(root + ".")]:
            del sys.modules[name]
        sys.modules.update({name: module for name, module in before.items() if name.split(".")[0] == root})


@contextmanager
def _recording(launches: list[Launch]):
    """Replace the launch of every JIT function by a note of it."""
    from triton.runtime.jit import JITFunction

    original = JITFunction.run

    def note(self, *args, grid, warmup, **kwargs):
        values = dict(zip(self.arg_names, args, strict=False)) | kwargs
        options = {name: value for name, value in values.items() if name not in self.arg_names}
        constexprs = {parameter.name for parameter in self.params if parameter.is_constexpr}
        bound = {name: value for name, value in values.items() if name in self.arg_names}
        extents = grid(bound) if callable(grid) else grid
        launches.append(Launch(
            name=self.__name__, kernel=self, grid=tuple(extents),
            args={name: value for name, value in bound.items() if name not in constexprs},
            constants={name: value for name, value in bound.items() if name in constexprs}, options=options))

    JITFunction.run = note
    try:
        yield
    finally:
        JITFunction.run = original
