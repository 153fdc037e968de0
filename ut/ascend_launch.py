"""The Ascend kernel's launch for a shape, planned on meta tensors."""
from __future__ import annotations

import torch

from mindspeed_kkt_plugin.kernels import ascend


def launch(B=1, T=128, H=1, HV=None, cu_seqlens=None, num_cores=24, head_first=False, output_head_first=False):
    """The kernel's launch for a call of this shape."""
    HV = HV or H
    order = (0, 2, 1, 3) if head_first else (0, 1, 2, 3)
    k, g = (torch.empty([shape[axis] for axis in order[:len(shape)]], dtype=dtype, device="meta")
            for shape, dtype in (((B, T, H, 32), torch.bfloat16), ((B, T, HV), torch.float32)))
    offsets = None if cu_seqlens is None else torch.tensor(cu_seqlens)
    _, launches = ascend.plan(k, g, g, offsets, None, chunk_size=ascend.CHUNK, output_dtype=k.dtype,
                              head_first=head_first, output_head_first=output_head_first, num_cores=num_cores)
    return launches[0]
