"""What every drawn call must satisfy. test_fuzz.py runs a few of them, `make fuzz` as many as fit its time."""
from __future__ import annotations

import os
from contextlib import contextmanager

import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin.kernels.launch import Launch
from ut.accuracy import FP32_BOUND, assert_accurate, exact
from ut.hostile.strategies import Drawn


@contextmanager
def _path(name: str):
    if name != "first":
        os.environ["MINDSPEED_KKT_PATH"] = name
    try:
        yield
    finally:
        os.environ.pop("MINDSPEED_KKT_PATH", None)


@contextmanager
def _unwritten_is_nan():
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def assert_agree(one: torch.Tensor, other: torch.Tensor, path: str, device: str) -> None:
    """Bit for bit, except on the torch path of an accelerator: its library chooses by the size of the batch."""
    if path == "torch" and device != "cpu":
        assert one.shape == other.shape and (one - other).norm() < FP32_BOUND * other.norm()
    else:
        assert torch.equal(one, other)


def good_call_is_right(drawn: Drawn, device: str = "cpu") -> None:
    """Accurate, complete, exact where promised, contiguous, and without touching an argument."""
    inputs = drawn.inputs(device)
    arguments = drawn.arguments(inputs)
    before = {name: (x.clone(), x._version) for name, x in arguments.items() if isinstance(x, torch.Tensor)}
    with _path(drawn.path), _unwritten_is_nan():
        out = fused(**arguments)
    assert out.dtype == drawn.dtype_of_result and out.is_contiguous() and out.device == inputs.k.device
    truth = exact(inputs)
    out = out.transpose(1, 2) if drawn.output_head_first else out
    if out.numel():
        assert_accurate(out, truth, inputs, drawn.regime)
    assert out.shape == truth.shape
    for name, (copy, version) in before.items():
        assert arguments[name]._version == version
        assert torch.equal(arguments[name].nan_to_num(), copy.nan_to_num()), f"{name} was changed"


def bad_call_is_refused(drawn: Drawn, name: str, value: object, device: str = "cpu") -> None:
    """TypeError or ValueError whose message names the argument; nothing is launched."""
    arguments = drawn.arguments(drawn.inputs(device)) | {name: value}
    if name == "chunk_indices" and arguments["cu_seqlens"] is None:
        arguments["cu_seqlens"] = torch.tensor([0, 0])
        arguments["k"] = torch.ones(1, 4, 1, 4)
        arguments["g"] = arguments["beta"] = None
    launch, launched = Launch.run, []
    Launch.run = lambda self: launched.append(self.name)
    try:
        fused(**arguments)
    except (TypeError, ValueError) as error:
        # Another argument may be the one that no longer fits the broken one.
        named = ("k ", "k,", "g ", "beta", "cu_seqlens", "chunk_size", "output_dtype", "chunk_indices", "head_first")
        assert any(str(error).startswith(part) or part.strip() in str(error) for part in named), str(error)
    else:
        raise AssertionError(f"{name} = {value!r} was accepted")
    finally:
        Launch.run = launch
    assert not launched
