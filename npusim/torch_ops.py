"""What torch itself would run on the device between the launches of a plan: zero fills, copies, transposes.

Noted while a plan is made with meta tensors; tensors with data (offsets, indices) are the host's and cost nothing here.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import UnsupportedError

# Bytes read and written per byte of the result.
MOVES = {**dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero_", "ones", "full", "new_full", "fill_"), (0, 1)),
         **dict.fromkeys(("clone", "copy_", "_to_copy"), (1, 1))}
FREE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "view", "_unsafe_view", "reshape",
        "transpose", "t", "permute", "slice", "select", "squeeze", "unsqueeze", "expand", "as_strided", "detach",
        "alias", "unbind", "split"}


@dataclass(frozen=True)
class TorchOp:
    """One call: on a device, a kernel that moves read_bytes and written_bytes through global memory."""

    name: str
    read_bytes: int
    written_bytes: int


class TorchOps(TorchDispatchMode):
    """Context in which calls on meta tensors are noted in `seen`; one it cannot price is an UnsupportedError.

    fresh: addresses of the storages of CPU tensors that were allocated and not filled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[TorchOp] = []
        self.fresh: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if isinstance(result, torch.Tensor) and result.device.type == "cpu":
            address = result.untyped_storage().data_ptr()
            if "empty" in name:
                self.fresh.add(address)
            elif name in MOVES:
                self.fresh.discard(address)
        if isinstance(result, torch.Tensor) and result.device.type == "meta" and name not in FREE:
            if name not in MOVES:
                raise UnsupportedError(f"torch op {name} between the launches is not priced; "
                                       f"known: {', '.join(sorted(MOVES))}")
            size = result.numel() * result.element_size()
            read, written = MOVES[name]
            self.seen.append(TorchOp(name, read * size, written * size))
        return result
