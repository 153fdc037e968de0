"""What the Triton kernels share: where a chunk lies, the gate, rounding on store, and strides on the host.

Importing this file imports Triton. No kernel is launched from here.
"""
from __future__ import annotations

import torch
import triton
import triton.language as tl

GATE_CLAMP = tl.constexpr(50.0)  # as in MindSpeed; see reference.GATE_CLAMP


@triton.jit
def chunk_place(cu_seqlens, chunk_indices, i_t, T, BT: tl.constexpr, PACKED: tl.constexpr):
    """First token of chunk number i_t (int64, so that no offset made from it overflows) and its live rows."""
    if PACKED:
        i_n = tl.load(chunk_indices + i_t * 2)
        i_c = tl.load(chunk_indices + i_t * 2 + 1).to(tl.int64)
        first = tl.load(cu_seqlens + i_n).to(tl.int64) + i_c * BT
        end = tl.load(cu_seqlens + i_n + 1).to(tl.int64)
    else:
        first = i_t.to(tl.int64) * BT
        end = T.to(tl.int64)
    return first, tl.minimum(end - first, BT).to(tl.int32)


@triton.jit
def gate(b_gi, b_gj):
    """exp of the clamped difference; callers mask the upper triangle. A NaN stays a NaN."""
    b_gap = tl.maximum(b_gi[:, None] - b_gj[None, :], -GATE_CLAMP, propagate_nan=tl.PropagateNan.ALL)
    return tl.exp(tl.minimum(b_gap, GATE_CLAMP, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def round_for(b_x, p_x, IN_INTERPRETER: tl.constexpr):
    """b_x in the type that p_x points to, to nearest even. Triton 3.2's interpreter truncates to bf16 instead."""
    if IN_INTERPRETER and p_x.dtype.element_ty == tl.bfloat16:
        bits = b_x.to(tl.int32, bitcast=True)
        b_x = ((bits + 0x7FFF + ((bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)
    return b_x.to(p_x.dtype.element_ty)


# Triton decides once per process, when `@triton.jit` runs, whether kernels are compiled or interpreted.
INTERPRETED = not isinstance(round_for, triton.JITFunction)
# triton-ascend, compiling: it has slices of tiles, and wants one program a core.
ASCEND = not INTERPRETED and hasattr(tl, "extract_slice")


def programs(tasks: int, cores: int) -> int:
    """Programs of a kernel that loops over its tasks: one a core, except on GPUs, which schedule by themselves."""
    return min(tasks, cores) if ASCEND or INTERPRETED else tasks


def last_axis_dense(x: torch.Tensor) -> torch.Tensor:
    """x, copied only if its last axis is not contiguous or a chunk's offsets inside it would not fit in 32 bits."""
    dense = x.stride(-1) == 1 and all(stride * 64 < 2**31 for stride in x.stride()[1:])
    return x if dense else x.contiguous()


def token_first_strides(x: torch.Tensor, head_first: bool) -> tuple[int, int, int]:
    """Strides of (batch, token, head) in elements, whichever layout x has."""
    batch, one, two = x.stride()[:3]
    return (batch, two, one) if head_first else (batch, one, two)
