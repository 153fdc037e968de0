"""What the benchmark calls: the fused operator and what it is compared with. Timing is in bench_clock.py.

Every maker takes (k, g, beta) and returns a call without arguments; g is in natural log for all of them.
"""
from __future__ import annotations

import importlib
import os
from collections.abc import Callable

import torch

from . import chunk_gated_delta_rule_fwd_kkt_solve

CHUNK = 64
LOG2_E = 1.4426950408889634

Maker = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Callable[[], torch.Tensor]]


def _import(name: str, package: str):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SystemExit(f"--against needs {package}: cannot import {name} ({error})") from error


def _fla(name: str):
    """A module of FLA's, its tuners emptied: they are keyed by heads, not length, so each shape gets its own tuning."""
    os.environ.setdefault("FLA_CACHE_RESULTS", "0")  # nor may an earlier process choose
    module = _import(name, "fla-core")
    for kernel in vars(module).values():
        while kernel is not None:
            if hasattr(kernel, "configs") and isinstance(getattr(kernel, "cache", None), dict):
                kernel.cache.clear()
            kernel = getattr(kernel, "fn", None)
    return module


def fused(k, g, beta):
    """The public operator, checks and path choice included."""
    return lambda: chunk_gated_delta_rule_fwd_kkt_solve(k, g, beta)


def unfused(k, g, beta):
    """This package's two-call chain."""
    chain = _import("mindspeed_kkt_plugin.unfused", "triton")
    return lambda: chain.solve_tril(chain.chunk_scaled_dot_kkt_fwd(k, g, beta=beta), output_dtype=k.dtype)


def fla_fused(k, g, beta):
    """FLA's fused kernel, launched as its wrapper launches it: a zeroed result, one program per chunk and head."""
    kernel = _fla("fla.ops.gated_delta_rule.chunk_fwd").chunk_gated_delta_rule_fwd_kkt_solve_kernel
    B, T, H, K = k.shape
    HV = beta.shape[2]
    g = g * LOG2_E  # its gates are in base 2

    def call():
        A = torch.zeros(B, T, HV, CHUNK, device=k.device, dtype=k.dtype)
        kernel[(-(-T // CHUNK), B * HV)](k=k, g=g, beta=beta, A=A, cu_seqlens=None, chunk_indices=None, T=T, H=H,
                                         HV=HV, K=K, BT=CHUNK, BC=16)
        return A

    return call


def fla_two_calls(k, g, beta):
    """FLA's chunk_scaled_dot_kkt_fwd, then its solve_tril."""
    kkt = _fla("fla.ops.common.chunk_scaled_dot_kkt").chunk_scaled_dot_kkt_fwd
    solve = _fla("fla.ops.utils.solve_tril").solve_tril
    g = g * LOG2_E
    return lambda: solve(kkt(k=k, g=g, beta=beta, chunk_size=CHUNK, output_dtype=torch.float32), output_dtype=k.dtype)


def mindspeed(k, g, beta):
    """MindSpeed's own two calls."""
    kkt = _import("mindspeed.ops.triton.chunk_scaled_dot_kkt", "MindSpeed").chunk_scaled_dot_kkt_fwd
    solve = _import("mindspeed.ops.triton.solve_tril", "MindSpeed").solve_tril
    return lambda: solve(kkt(k=k, g=g, beta=beta, output_dtype=torch.float32), output_dtype=k.dtype)


AGAINST: dict[str, dict[str, Maker]] = {
    "fla": {"FLA fused": fla_fused, "FLA two calls": fla_two_calls},
    "unfused": {"own two calls": unfused},
    "mindspeed": {"MindSpeed two calls": mindspeed},
}
