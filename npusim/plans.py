"""Which launches an operator makes for a shape: the plugin's fused and unfused plans, or a checkout's own chain.

Inputs are meta tensors (compile, time) or seeded CPU data (run). Nothing is compiled or executed here.
"""
from __future__ import annotations

import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from mindspeed_kkt_plugin.varlen import prepare_chunk_indices

from . import backend, upstream
from .errors import NpusimError, UnsupportedError
from .torch_ops import TorchOp, TorchOps

OPS = {"fused": "mindspeed_kkt_plugin.kernels.ascend", "unfused": "mindspeed_kkt_plugin.unfused"}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
CHUNK = 64


@dataclass(frozen=True)
class Shape:
    """B sequences (rows of the batch), T tokens, H key heads, HV value heads, K channels."""

    B: int
    T: int
    H: int
    HV: int
    K: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        """From "B,T,H,HV,K"; NpusimError says what is wrong."""
        try:
            numbers = [int(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) != 5 or min(numbers) < 1:
            raise NpusimError(f"--shape {text}: wanted five positive integers B,T,H,HV,K, for example 1,8192,4,4,128")
        return cls(*numbers)

    def __str__(self) -> str:
        return f"{self.B},{self.T},{self.H},{self.HV},{self.K}"

    @property
    def chunk_heads(self) -> int:
        """(chunk, value head) pairs of the unpacked shape."""
        return self.B * -(-self.T // CHUNK) * self.HV

    def hbm_bytes(self, dtype: torch.dtype) -> int:
        """Bytes that any implementation must move: k, g (fp32), beta and the result, once each."""
        size = dtype.itemsize
        tokens = self.B * self.T
        return tokens * (self.H * self.K * size + self.HV * (4 + size + CHUNK * size))


# (B, T, HV, K) with H = HV, bf16: the shapes every table shows.
STANDARD_SHAPES = tuple(Shape(b, t, h, h, k) for b, t, h, k in (
    (1, 2048, 4, 128), (1, 4096, 4, 128), (1, 4096, 8, 128), (1, 8192, 2, 128), (1, 8192, 4, 128), (1, 8192, 8, 128),
    (2, 4096, 16, 128), (4, 2048, 16, 128), (1, 8192, 16, 128), (1, 16384, 8, 128), (1, 4096, 32, 128),
    (1, 8192, 32, 128), (1, 16384, 32, 128)))


@dataclass(frozen=True)
class Plan:
    """inputs: k, g, beta, cu_seqlens; output: what the launches fill; torch_ops: what torch runs besides them.

    fresh: addresses of the storages that hold nothing yet when the first launch starts (CPU data only).
    """

    op: str
    shape: Shape
    dtype: str
    inputs: dict[str, Any]
    output: Any
    launches: tuple
    torch_ops: tuple[TorchOp, ...] = ()
    fresh: frozenset[int] = frozenset()


def make(op: str, shape: Shape, dtype: str = "bf16", *, cu_seqlens: list[int] | None = None,
         target: str = "Ascend910B2", data: bool = False, regime: str = "random", seed: int = 0,
         mindspeed_src: str | None = None) -> Plan:
    """Plan of `op` ("fused", "unfused", "upstream" with mindspeed_src, or the name of a module that has a `plan`).

    Tensors are token-first. cu_seqlens: offsets of packed sequences, then B is 1. data: CPU tensors with seeded
    values instead of meta ones. Raises UnsupportedError for an unknown op, dtype, target or regime.
    """
    if dtype not in DTYPES:
        raise UnsupportedError(f"--dtype {dtype}: allowed are {', '.join(DTYPES)}")
    cores = backend.cube_cores(target)
    with _empty_is_nan():
        return _make(op, shape, dtype, cu_seqlens, cores, data, regime, seed, mindspeed_src)


@contextmanager
def _empty_is_nan():
    """torch.empty gives NaN instead of whatever lay there, so that a result nobody wrote is seen."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _make(op, shape, dtype, cu_seqlens, cores, data, regime, seed, mindspeed_src) -> Plan:
    inputs = make_inputs(shape, DTYPES[dtype], cu_seqlens, data=data, regime=regime, seed=seed)
    between = TorchOps()
    if op == "upstream":
        if mindspeed_src is None:
            raise NpusimError("--op upstream needs --mindspeed-src DIR, a checkout of MindSpeed or MindSpeed-MM")
        with between:
            chain = upstream.capture_chain(mindspeed_src, **inputs, chunk_size=CHUNK)
        return Plan(op, shape, dtype, inputs, chain.output, chain.launches, tuple(between.seen),
                    frozenset(between.fresh))
    plan = _plan_function(op)
    indices = None if cu_seqlens is None else prepare_chunk_indices(inputs["cu_seqlens"], CHUNK)
    with between:
        output, launches = plan(inputs["k"], inputs["g"], inputs["beta"], inputs["cu_seqlens"], indices,
                                chunk_size=CHUNK, output_dtype=DTYPES[dtype], head_first=False,
                                output_head_first=False, num_cores=cores)
    return Plan(op, shape, dtype, inputs, output, tuple(launches), tuple(between.seen), frozenset(between.fresh))


def _plan_function(op: str):
    if op not in OPS and "." not in op:
        raise UnsupportedError(f"--op {op}: allowed are {', '.join([*OPS, 'upstream'])}, or a module.with.dots")
    name = OPS.get(op, op)
    try:
        return importlib.import_module(name).plan
    except (ImportError, AttributeError) as error:
        raise NpusimError(f"--op {op}: {name}.plan is not there: {error}") from error


def make_inputs(shape: Shape, dtype: torch.dtype, cu_seqlens: list[int] | None, *, data: bool, regime: str,
                seed: int) -> dict[str, Any]:
    """k (rows of norm 1), g (fp32, cumulative inside a chunk), beta in (0, 1), cu_seqlens (int64, always real)."""
    if cu_seqlens is not None:
        steps = [end - start for start, end in zip(cu_seqlens, cu_seqlens[1:], strict=False)]
        if shape.B != 1 or len(cu_seqlens) < 2 or cu_seqlens[0] != 0 or min(steps) < 0 or cu_seqlens[-1] > shape.T:
            raise NpusimError(f"--varlen {','.join(map(str, cu_seqlens))}: wanted B=1 and offsets that start at 0, "
                              f"never fall and end at or before T={shape.T}; B is {shape.B}")
    if regime not in REGIMES:
        raise UnsupportedError(f"--regime {regime}: allowed are {', '.join(REGIMES)}")
    heads = (shape.B, shape.T, shape.HV)
    if data:
        k, g, beta = REGIMES[regime](shape, torch.Generator().manual_seed(seed))
        k, beta = k.to(dtype), beta.to(dtype)
    else:
        k = torch.empty(shape.B, shape.T, shape.H, shape.K, dtype=dtype, device="meta")
        g = torch.empty(heads, dtype=torch.float32, device="meta")
        beta = torch.empty(heads, dtype=dtype, device="meta")
    offsets = None if cu_seqlens is None else torch.tensor(cu_seqlens, dtype=torch.int64)
    return {"k": k, "g": g, "beta": beta, "cu_seqlens": offsets}


def _random(shape: Shape, generator: torch.Generator):
    """Keys in random directions, gates that decay to about e^-8 inside a chunk."""
    k = torch.randn(shape.B, shape.T, shape.H, shape.K, generator=generator)
    rate = torch.rand(shape.B, shape.T, shape.HV, generator=generator) / 4
    beta = torch.rand(shape.B, shape.T, shape.HV, generator=generator)
    return k / k.norm(dim=-1, keepdim=True), _cumulative(-rate), beta


def _repeated(shape: Shape, generator: torch.Generator):
    """One key for all tokens, beta 1, no decay: the inverse's entries stay near 1 while L's do not shrink."""
    k = torch.randn(1, 1, shape.H, shape.K, generator=generator).expand(shape.B, shape.T, -1, -1)
    heads = (shape.B, shape.T, shape.HV)
    return k / k.norm(dim=-1, keepdim=True), torch.zeros(heads), torch.ones(heads)


def _cumulative(gate: torch.Tensor) -> torch.Tensor:
    """Running sum that starts anew every CHUNK tokens."""
    total = gate.cumsum(1)
    starts = torch.arange(gate.shape[1]) // CHUNK * CHUNK
    before = torch.where(starts[None, :, None] > 0, total[:, (starts - 1).clamp(min=0)], torch.zeros(()))
    return total - before


REGIMES = {"random": _random, "repeated": _repeated}
