"""Products of fp32 tiles on matrix units that only multiply bf16, and the decay factor, for the portable kernel.

A factor is cut into three bf16 parts whose sum it is. Costs and reasons: docs/en/gpu-kernel-log.md.
"""
from __future__ import annotations

import triton
import triton.language as tl

from .shared import GATE_CLAMP

# Two neighbours at once: round both to bf16 in one instruction, and hand back what rounding left over.
_CUT_PTX = tl.constexpr(
    "{ .reg .b32 t; cvt.rn.bf16x2.f32 $0, $4, $3; shl.b32 t, $0, 16; sub.f32 $1, $3, t;"
    " and.b32 t, $0, 0xffff0000; sub.f32 $2, $4, t; }"
)
_EXP_PTX = tl.constexpr("{ .reg .f32 t; mul.f32 t, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, t; }")  # 2^(x log2 e)


@triton.jit
def _cut(b_x, PTX: tl.constexpr):
    """b_x as a bf16 part and the exact fp32 rest."""
    if PTX:  # Triton's own conversion rounds one number at a time, on a unit of a quarter of the rate
        b_part, b_rest = tl.inline_asm_elementwise(
            _CUT_PTX, "=r,=r,=r,r,r", [b_x], dtype=(tl.bfloat16, tl.float32), is_pure=True, pack=2
        )
    else:
        b_part = b_x.to(tl.bfloat16)
        b_rest = b_x - b_part.to(tl.float32)
    return b_part, b_rest


@triton.jit
def _dot(b_a, b_b, b_acc, INTERPRETED: tl.constexpr):
    if INTERPRETED:  # Triton 3.2's interpreter multiplies the bit patterns of bf16
        b_a = b_a.to(tl.float32)
        b_b = b_b.to(tl.float32)
    return tl.dot(b_a, b_b, b_acc, input_precision="ieee")


@triton.jit
def _parts(b_x, PTX: tl.constexpr):
    """The three bf16 parts of b_x."""
    b_0, b_rest = _cut(b_x, PTX)
    b_1, b_rest = _cut(b_rest, PTX)
    return b_0, b_1, b_rest.to(tl.bfloat16)


@triton.jit
def turned(b_x):
    """b_x, or each tile of a batch, transposed."""
    if len(b_x.shape) == 2:
        b_y = tl.trans(b_x)
    else:
        b_y = tl.permute(b_x, (0, 2, 1))
    return b_y


@triton.jit
def mul_transposed(b_acc, b_a, b_b, SPLIT: tl.constexpr, PTX: tl.constexpr, INTERPRETED: tl.constexpr):
    """b_acc + b_a @ b_b^T for fp32 tiles: one fp32 product, or with SPLIT six of bf16 parts, accurate to about 2^-24.

    Two parts would do for the norm of a bf16 result, but not for its small entries, which are made by cancellation.
    The right factor comes transposed because the layout of an accumulator on NVIDIA's matrix units, transposed, is
    the layout of a right factor: no shuffle, no shared memory. Cutting the same tile twice costs nothing, the
    compiler keeps one copy.
    """
    b_b = turned(b_b)
    if SPLIT:  # the smallest terms first
        b_a0, b_a1, b_a2 = _parts(b_a, PTX)
        b_b0, b_b1, b_b2 = _parts(b_b, PTX)
        b_acc = _dot(b_a1, b_b1, b_acc, INTERPRETED)
        b_acc = _dot(b_a2, b_b0, b_acc, INTERPRETED)
        b_acc = _dot(b_a0, b_b2, b_acc, INTERPRETED)
        b_acc = _dot(b_a1, b_b0, b_acc, INTERPRETED)
        b_acc = _dot(b_a0, b_b1, b_acc, INTERPRETED)
        b_acc = _dot(b_a0, b_b0, b_acc, INTERPRETED)
    else:
        b_acc = tl.dot(b_a, b_b, b_acc, input_precision="ieee")
    return b_acc


@triton.jit
def mul_two_transposed(b_a, b_b, b_c, b_d, SPLIT: tl.constexpr, PTX: tl.constexpr, INTERPRETED: tl.constexpr):
    """b_a @ b_b^T + b_c @ b_d^T, added up in the order of one product of tiles twice as long."""
    b_b = turned(b_b)
    b_d = turned(b_d)
    b_acc = tl.zeros([b_a.shape[0], b_b.shape[1]], tl.float32)
    if SPLIT:
        b_a0, b_a1, b_a2 = _parts(b_a, PTX)
        b_b0, b_b1, b_b2 = _parts(b_b, PTX)
        b_c0, b_c1, b_c2 = _parts(b_c, PTX)
        b_d0, b_d1, b_d2 = _parts(b_d, PTX)
        b_acc = _dot(b_c1, b_d1, _dot(b_a1, b_b1, b_acc, INTERPRETED), INTERPRETED)
        b_acc = _dot(b_c2, b_d0, _dot(b_a2, b_b0, b_acc, INTERPRETED), INTERPRETED)
        b_acc = _dot(b_c0, b_d2, _dot(b_a0, b_b2, b_acc, INTERPRETED), INTERPRETED)
        b_acc = _dot(b_c1, b_d0, _dot(b_a1, b_b0, b_acc, INTERPRETED), INTERPRETED)
        b_acc = _dot(b_c0, b_d1, _dot(b_a0, b_b1, b_acc, INTERPRETED), INTERPRETED)
        b_acc = _dot(b_c0, b_d0, _dot(b_a0, b_b0, b_acc, INTERPRETED), INTERPRETED)
    else:
        b_acc = tl.dot(b_c, b_d, tl.dot(b_a, b_b, b_acc, input_precision="ieee"), input_precision="ieee")
    return b_acc


@triton.jit
def decay(b_gap, PTX: tl.constexpr):
    """exp of the clamped difference of gates. A NaN stays a NaN."""
    b_gap = tl.maximum(b_gap, -GATE_CLAMP, propagate_nan=tl.PropagateNan.ALL)
    b_gap = tl.minimum(b_gap, GATE_CLAMP, propagate_nan=tl.PropagateNan.ALL)
    if PTX:  # tl.exp guards against denormal results, which the clamp excludes: three instructions an element
        b_e = tl.inline_asm_elementwise(_EXP_PTX, "=f,f", [b_gap], dtype=tl.float32, is_pure=True, pack=1)
    else:
        b_e = tl.exp(b_gap)
    return b_e
