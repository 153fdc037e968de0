"""The decorator put around a consumer's forward: it runs the forward's own code, with the two names of the pair bound
to a deferred kkt and a solve that launches the fused operator. Nothing outside that one call sees either.

Which forwards qualify is decided in `pairing.py`; where the decorator is put, in `routes.py` and `feature.py`.
"""
from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from mindspeed_kkt_plugin import paths
from mindspeed_kkt_plugin.checks import CHUNK_SIZES, DTYPES, MAX_K

from . import log
from .consumers import KKT, SOLVE, Consumer
from .pairing import why_unpaired

FUSED_PATHS = ("ascend", "portable")
HAS_ORIGINALS = ("npu",)  # devices on which the consumers' own operators run
_MARK = "__fused_kkt_solve__"  # on our function: the consumer's id


_made: weakref.WeakSet[types.FunctionType] = weakref.WeakSet()


def consumer_of(function: object) -> str | None:
    """The id of the consumer whose fused forward this is, itself or beneath decorators that use functools.wraps."""
    return getattr(function, "__dict__", {}).get(_MARK)


def is_fused_forward(function: object) -> bool:
    """Whether this very function was made here."""
    return isinstance(function, types.FunctionType) and function in _made


@functools.cache
def wrapper_for(consumer: Consumer) -> Callable:
    """The decorator of one consumer, always the same object: MindSpeed's manager then registers it only once.

    It returns the forward it is given, untouched, if that is fused already or does not use the pair as we require.
    """

    def gdn_kkt_solve_wrapper(forward: Callable) -> Callable:
        if consumer_of(forward):
            return forward
        if reason := why_unpaired(forward):
            log.left_alone(consumer, reason)
            return forward

        @functools.wraps(forward)
        def fused_forward(*args: Any, **kwargs: Any) -> Any:
            return _with_pair(forward, consumer)(*args, **kwargs)

        setattr(fused_forward, _MARK, consumer.id)
        _made.add(fused_forward)
        log.active(consumer)
        return fused_forward

    return gdn_kkt_solve_wrapper


def _with_pair(forward: types.FunctionType, consumer: Consumer) -> types.FunctionType:
    """The forward's code over a copy of its module's globals, taken now, so that every other patch stays visible.

    Made anew for each call, so that no call can meet another's. All that stands here between forward and operator
    takes about 15 us of host time (measured on one CPU core), a fraction of the one launch that it saves.
    """
    names = dict(forward.__globals__)
    names[KKT] = functools.partial(PendingKkt, names[KKT])
    names[SOLVE] = functools.partial(_solve, consumer, names[SOLVE])
    body = types.FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    body.__kwdefaults__ = forward.__kwdefaults__
    return body


class PendingKkt:
    """A call of kkt not made yet. `pairing.py` has proven that only solve receives it."""

    def __init__(self, original: Callable, **arguments: Any) -> None:
        self.original = original
        self.arguments = arguments


def _solve(consumer: Consumer, original: Callable, *, A: Any, output_dtype: torch.dtype | None, **rest: Any) -> Any:
    if not isinstance(A, PendingKkt):
        return original(A=A, output_dtype=output_dtype, **rest)
    reason = _refusal(A.arguments, rest.get("cu_seqlens"))
    if reason is None:
        arguments = _operator_arguments(consumer, A.arguments, torch.float32 if output_dtype is None else output_dtype)
        reason = _kernel_refusal(arguments)
    if reason is not None:
        log.once(consumer, f"this call runs the original two operators: {reason}")
        return original(A=A.original(**A.arguments), output_dtype=output_dtype, **rest)
    out = operator()(**arguments)
    return out.transpose(1, 2) if consumer.head_first_A else out


def _refusal(kkt: dict[str, Any], solve_cu_seqlens: torch.Tensor | None) -> str | None:
    """Why the fused operator does not stand for these two calls, or None. Looks at attributes only, never at values,
    so that nothing waits for the device."""
    k, g, beta, cu_seqlens = (kkt.get(name) for name in ("k", "g", "beta", "cu_seqlens"))
    if kkt.get("gk") is not None:
        return "gk (a gate per key channel) is given"
    if g is None or beta is None:
        return f"{'g' if g is None else 'beta'} is None"
    if kkt["output_dtype"] != torch.float32:
        return f"A between the two is asked for in {kkt['output_dtype']}, not torch.float32"
    if kkt["chunk_size"] not in CHUNK_SIZES:
        return f"chunk_size is {kkt['chunk_size']}, the fused operator takes {CHUNK_SIZES}"
    if k.dtype not in DTYPES or not 1 <= k.shape[-1] <= MAX_K:
        return f"k has dtype {k.dtype} and K={k.shape[-1]}, the fused operator takes {DTYPES} and K<={MAX_K}"
    if solve_cu_seqlens is not cu_seqlens:
        return "kkt and solve are given different cu_seqlens"
    if cu_seqlens is not None and k.shape[0] != 1:
        return f"cu_seqlens is given with a batch of {k.shape[0]}, not 1"
    return None


def _operator_arguments(consumer: Consumer, kkt: dict[str, Any], output_dtype: torch.dtype) -> dict[str, Any]:
    """The consumer's chunk tables are left out: MindSpeed's miscount after an empty sequence; ours are remembered."""
    g, beta = kkt["g"], kkt["beta"]
    if consumer.head_first_k:  # only k is; the operator wants all three alike, and takes views
        g, beta = g.transpose(1, 2), beta.transpose(1, 2)
    # A consumer that transposes A next then finds it contiguous, and its copy is saved.
    return dict(k=kkt["k"], g=g, beta=beta, cu_seqlens=kkt.get("cu_seqlens"), chunk_indices=None,
                chunk_size=kkt["chunk_size"], output_dtype=output_dtype, head_first=consumer.head_first_k,
                output_head_first=consumer.head_first_A)


def _kernel_refusal(arguments: dict[str, Any]) -> str | None:
    """Why no fused kernel takes the call where MindSpeed's own operators are the better fallback, or None."""
    k, g, beta = (arguments[name] for name in ("k", "g", "beta"))
    device = k.device.type
    if device not in HAS_ORIGINALS or (k.dim(), g.dim(), beta.dim()) != (4, 3, 3):
        return None  # about wrong shapes the operator's own error says more
    reasons = {path.name: path.refuse(paths.Call(**arguments)) for path in paths.PATHS
               if path.name in FUSED_PATHS and device in path.devices}
    return None if None in reasons.values() else "; ".join(f"{name}: {reason}" for name, reason in reasons.items())


def operator() -> Callable:
    """The fused operator, looked up at each call: importing it early would import Triton."""
    from mindspeed_kkt_plugin.op import chunk_gated_delta_rule_fwd_kkt_solve

    return chunk_gated_delta_rule_fwd_kkt_solve
