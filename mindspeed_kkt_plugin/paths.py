"""Which implementation runs a call, and the record of what ran and why.

Order: fused Ascend kernel, fused portable kernel, two-call chain, torch. The kernels themselves live in `kernels/`,
the argument rules in `checks.py`. Choosing looks at attributes only and never waits for a device.
"""
from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import threading
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import torch

from . import reference
from .varlen import prepare_chunk_indices

log = logging.getLogger("mindspeed_kkt_plugin")

CPU_PROGRAMS = 2  # programs of a persistent kernel under the interpreter: enough to exercise its task loop


@dataclass(frozen=True)
class Call:
    """One checked call of the operator."""

    k: torch.Tensor
    g: torch.Tensor | None
    beta: torch.Tensor | None
    cu_seqlens: torch.Tensor | None
    chunk_indices: torch.Tensor | None
    chunk_size: int
    output_dtype: torch.dtype
    head_first: bool
    output_head_first: bool

    @property
    def kind(self) -> tuple:
        """What a compiled kernel depends on: a path that failed to compile is not tried again for the same kind."""
        shapes = [None if x is None else (x.dtype, x.shape[1 if self.head_first else 2]) for x in
                  (self.k, self.g, self.beta)]
        return (*shapes, self.k.shape[-1], self.chunk_size, self.output_dtype, self.cu_seqlens is None, self.k.device)


@dataclass(frozen=True)
class Path:
    """name; devices it is meant for; missing() → why it cannot run here at all, or None; module with plan/refuse."""

    name: str
    what: str
    devices: tuple[str, ...]
    module: str | None

    def missing(self) -> str | None:
        return None if self.module is None else _load(self.module)[1]

    def refuse(self, call: Call) -> str | None:
        """Why this path does not take the call, or None."""
        device = call.k.device.type
        if self.module is None:
            return None
        if device not in self.devices:
            return f"runs on {'/'.join(self.devices)}, the tensors are on {device}"
        module, reason = _load(self.module)
        if reason is None and device == "cpu" and not module.INTERPRETED:
            reason = "on the CPU it needs Triton's interpreter (TRITON_INTERPRET=1 before triton is imported)"
        if reason is None:
            reason = _broken.get((self.name, call.kind))
        if reason is not None:
            return reason
        try:
            options = _plan_options(call)
        except Exception as error:  # Triton is there, but not a driver that knows this device
            return f"the device's cores cannot be counted: {type(error).__name__}: {error}"
        return module.refuse(*_plan_arguments(call), **options)

    def run(self, call: Call) -> torch.Tensor:
        if self.module is None:
            out = reference.kkt_solve(*_plan_arguments(call)[:4], call.chunk_size, head_first=call.head_first,
                                      output_head_first=call.output_head_first, dtype=torch.float32)
            return out.to(call.output_dtype).contiguous()
        module = _load(self.module)[0]
        if call.cu_seqlens is not None and getattr(module, "READS_CHUNK_INDICES", True):
            table = call.chunk_indices
            if table is None:
                table = prepare_chunk_indices(call.cu_seqlens, call.chunk_size)
            # Kernels read both as dense arrays.
            dense = dict(cu_seqlens=call.cu_seqlens.contiguous(), chunk_indices=table.contiguous())
            call = Call(**{**call.__dict__, **dense})
        out, launches = module.plan(*_plan_arguments(call), **_plan_options(call))
        run_launches(launches, call.k.device)
        return out.contiguous()  # the two-call chain gives a head-first result as a view


PATHS = (
    Path("ascend", "fused kernel for Ascend A2/A3", ("npu",), "mindspeed_kkt_plugin.kernels.ascend"),
    Path("portable", "fused kernel for any Triton target", ("cuda", "cpu"), "mindspeed_kkt_plugin.kernels.portable"),
    Path("two_call", "kkt, then solve_tril", ("npu", "cuda", "cpu"), "mindspeed_kkt_plugin.unfused"),
    Path("torch", "plain torch, forward substitution in float32", ("any",), None),
)

_broken: dict[tuple, str] = {}  # (path, kind of call) → why its kernels did not compile
_calls: Counter[str] = Counter()
_fallbacks: Counter[str] = Counter()
_last: dict[str, str] = {}
_interpreter = threading.Lock()
_records = threading.Lock()


def run(call: Call) -> torch.Tensor:
    """Run the first path that takes the call. Only a failure to compile moves on to the next; it is logged.

    MINDSPEED_KKT_PATH=NAME allows that path only, to tell a kernel's fault from its caller's.
    """
    reasons = []
    for path in _allowed():
        reason = path.refuse(call)
        if reason is None:
            try:
                out = path.run(call)
            except Exception as error:
                if not _is_compile_failure(error):
                    raise
                reason = f"did not compile: {type(error).__name__}: {str(error).strip()[-200:]}"
                _broken[path.name, call.kind] = reason
            else:
                _record(path, reasons)
                return out
        if call.k.device.type in path.devices:
            reasons.append(f"{path.name}: {reason}")
    raise RuntimeError(f"MINDSPEED_KKT_PATH={os.environ['MINDSPEED_KKT_PATH']} cannot take this call: {reason}")


def _allowed() -> tuple[Path, ...]:
    wanted = os.environ.get("MINDSPEED_KKT_PATH")
    if not wanted:
        return PATHS
    allowed = tuple(path for path in PATHS if path.name == wanted)
    if not allowed:
        raise ValueError(f"MINDSPEED_KKT_PATH is {wanted!r}; allowed: {', '.join(path.name for path in PATHS)}")
    return allowed


def _record(path: Path, reasons: list[str]) -> None:
    first = f"MINDSPEED_KKT_PATH={path.name}" if os.environ.get("MINDSPEED_KKT_PATH") else "first for this device"
    why = "; ".join(reasons) or first
    with _records:
        _last.update(path=path.name, why=why)
        _calls[path.name] += 1
        news = bool(reasons) and why not in _fallbacks
        if reasons:
            _fallbacks[why] += 1
    if news:
        log.warning("chunk_gated_delta_rule_fwd_kkt_solve falls back to '%s' (%s) because %s",
                    path.name, path.what, why)


def _is_compile_failure(error: Exception) -> bool:
    kinds = type(error).__mro__
    interpreted = any(kind.__name__ == "InterpreterError" for kind in kinds)
    return not interpreted and any(kind.__module__.split(".")[0] == "triton" for kind in kinds)


def _plan_arguments(call: Call) -> tuple:
    return call.k, call.g, call.beta, call.cu_seqlens, call.chunk_indices


def _plan_options(call: Call) -> dict:
    return dict(chunk_size=call.chunk_size, output_dtype=call.output_dtype, head_first=call.head_first,
                output_head_first=call.output_head_first, num_cores=num_cores(call.k.device))


@lru_cache(maxsize=None)
def _load(name: str) -> tuple[object | None, str | None]:
    """The module, or why it cannot be imported. Nothing here may fail: an absent Triton is normal."""
    try:
        return importlib.import_module(name), None
    except ImportError as error:
        return None, f"cannot be imported: {error}"
    except Exception as error:  # a Triton without a usable driver raises its own kinds at import
        return None, f"import failed: {type(error).__name__}: {error}"


@lru_cache(maxsize=None)
def num_cores(device: torch.device) -> int:
    """Cube cores of an NPU, multiprocessors of a GPU."""
    if device.type == "npu":
        from triton.runtime import driver

        return driver.active.utils.get_device_properties(device.index or 0)["num_aicore"]
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return CPU_PROGRAMS


def run_launches(launches, device: torch.device) -> None:
    """Run a plan. Triton launches on the current device, which need not be the tensors'.

    On the CPU one thread at a time: Triton's interpreter keeps the running program's number in a global.
    """
    guard = {"cuda": torch.cuda.device, "npu": getattr(getattr(torch, "npu", None), "device", None)}.get(device.type)
    with guard(device) if guard else _interpreter:
        for launch in launches:
            launch.run()


def status() -> dict:
    """What could run here, what did run and why.

    Returns versions (package → version or None), devices (kind → name, or None where absent), paths (name → None when
    usable, else the reason), last ({path, why} of the last call, or None), calls (path → number) and
    fallbacks (reason → number of calls).
    """
    return {
        "versions": {name: _version(name) for name in
                     ("mindspeed-kkt-plugin", "torch", "triton", "triton-ascend", "torch_npu", "mindspeed")},
        "devices": {"cpu": "interpreter" if _interpreted() else "torch only", "cuda": _device_name("cuda"),
                    "npu": _device_name("npu")},
        "paths": {path.name: path.missing() or _no_device(path) for path in PATHS},
        "last": dict(_last) or None,
        "calls": dict(_calls),
        "fallbacks": dict(_fallbacks),
    }


def _interpreted() -> bool:
    module = _load("mindspeed_kkt_plugin.kernels.portable")[0]
    return module is not None and module.INTERPRETED


def _no_device(path: Path) -> str | None:
    present = {"any": True, "cpu": _interpreted(), "cuda": _device_name("cuda"), "npu": _device_name("npu")}
    if any(present[kind] for kind in path.devices):
        return None
    hint = "; on the CPU it needs TRITON_INTERPRET=1" if "cpu" in path.devices else ""
    return f"no usable device ({'/'.join(path.devices)}){hint}"


def _device_name(kind: str) -> str | None:
    backend = getattr(torch, kind, None)
    try:
        return backend.get_device_name() if backend is not None and backend.is_available() else None
    except Exception as error:  # a broken driver must not break a report about it
        return f"unusable: {error}"


def _version(package: str) -> str | None:
    if package == "mindspeed-kkt-plugin":
        from . import __version__

        return __version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
