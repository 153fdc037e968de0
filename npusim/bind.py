"""Turns the tensors of a `Compiled` launch into the flat arrays that execute and time take. No copies are made."""
from __future__ import annotations

import numpy as np
import torch

from .views import Meta

# Types numpy lacks travel as their bits.
AS_BITS = {torch.bfloat16: (torch.int16, np.uint16)}


def arrays(compiled) -> list:
    """Arguments in order: numpy view of each CPU tensor's storage, Meta for meta tensors, numbers as they are."""
    return [flat(argument.value) if argument.kind == "tensor" else argument.value for argument in compiled.args]


def flat(tensor: torch.Tensor):
    """One-dimensional view of what a kernel can reach behind the tensor's pointer; Meta when it holds no data."""
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    span = span if tensor.numel() else 0
    if tensor.device.type == "meta":
        return Meta(span)
    line = tensor.detach().as_strided((span,), (1,))
    if tensor.dtype in AS_BITS:
        integer, unsigned = AS_BITS[tensor.dtype]
        return line.view(integer).numpy().view(unsigned)
    return line.numpy()
