"""The fused kernel for any Triton target: CUDA, and the interpreter on the CPU. Not meant for Ascend.

One program makes one chunk of one value head. Every tile is 16 x 16: the leaves on the diagonal are
inverted by substitution, the rest follows by block substitution, so fp32 accuracy holds for correlated keys too.
"""
from __future__ import annotations

import torch
import triton
import triton.language as tl

from .launch import Launch
from .shared import INTERPRETED, chunk_place, gate, last_axis_dense, round_for, token_first_strides

__all__ = ["INTERPRETED", "plan", "refuse"]


@triton.jit
def _keys(p_k, o_k, m_rows, K, INTERPRETED: tl.constexpr):
    b_k = tl.load(p_k + o_k[None, :], mask=m_rows[:, None] & (o_k < K)[None, :], other=0.0)
    if INTERPRETED:  # Triton 3.2's interpreter multiplies the bit patterns of bf16
        b_k = b_k.to(tl.float32)
    return b_k


@triton.jit
def _values(p_x, o_rows, stride, m_rows):
    return tl.load(p_x + o_rows * stride, mask=m_rows, other=0.0).to(tl.float32)


@triton.jit
def _gated(b_s, b_gi, b_gj, b_beta, m_rows, DIAGONAL: tl.constexpr, HAS_G: tl.constexpr, HAS_BETA: tl.constexpr):
    """One 16 x 16 tile of L from the product of keys. Selects, so that nothing masked can spoil it."""
    b_l = b_s
    if HAS_G:
        b_l *= gate(b_gi, b_gj)
    if HAS_BETA:
        b_l *= b_beta[:, None]
    if DIAGONAL:
        o = tl.arange(0, 16)
        return tl.where((o[:, None] > o[None, :]) & m_rows[:, None], b_l, 0.0)
    return tl.where(m_rows[:, None], b_l, 0.0)


@triton.jit
def _leaf(b_l):
    """(I + L)^-1 of a strictly lower 16 x 16 tile: column j of L times row j of the result leaves all later rows."""
    o = tl.arange(0, 16)
    b_x = tl.where(o[:, None] == o[None, :], 1.0, 0.0)
    for j in tl.static_range(15):
        b_column = tl.sum(tl.where(o[None, :] == j, b_l, 0.0), 1)
        b_row = tl.sum(tl.where(o[:, None] == j, b_x, 0.0), 0)
        b_x = tl.where(o[:, None] > j, b_x - b_column[:, None] * b_row[None, :], b_x)
    return b_x


@triton.jit
def _mul(b_a, b_b, PRECISION: tl.constexpr):
    return tl.dot(b_a, b_b, input_precision=PRECISION)


@triton.jit
def _pair(b_l00, b_l10, b_l11, PRECISION: tl.constexpr):
    """Inverse of a 32 x 32 matrix given by its tiles of L: (X00, X10, X11)."""
    b_x00 = _leaf(b_l00)
    b_x11 = _leaf(b_l11)
    return b_x00, -_mul(b_x11, _mul(b_l10, b_x00, PRECISION), PRECISION), b_x11


@triton.jit
def _put(p_out, b_x, i: tl.constexpr, j: tl.constexpr, stride_t, n_rows, INTERPRETED: tl.constexpr):
    o_i, o_j = i * 16 + tl.arange(0, 16), j * 16 + tl.arange(0, 16)
    p_x = p_out + o_i[:, None] * stride_t + o_j[None, :]
    tl.store(p_x, round_for(b_x, p_x, INTERPRETED), mask=(o_i < n_rows)[:, None])


@triton.jit(do_not_specialize=["T", "NT"])
def fused_kkt_solve_kernel(
    k, g, beta, out, cu_seqlens, chunk_indices, T, NT, N,
    k_stride_b, k_stride_t, k_stride_h,
    g_stride_b, g_stride_t, g_stride_h,
    beta_stride_b, beta_stride_t, beta_stride_h,
    out_stride_b, out_stride_t, out_stride_h,
    H: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
    HAS_G: tl.constexpr, HAS_BETA: tl.constexpr, PACKED: tl.constexpr, PRECISION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Steps: key products of the lower tiles; gate, beta and mask; leaves; block substitution; whole rows out."""
    NB: tl.constexpr = BT // 16
    i_task = tl.program_id(0)
    i_hv = i_task % HV  # heads fastest: neighbours read the same rows of k
    i_t = (i_task // HV) % NT
    i_b = (i_task // (HV * NT)).to(tl.int64)
    first, n_rows = chunk_place(cu_seqlens, chunk_indices, i_t, T, BT, PACKED)

    p_k = k + i_b * k_stride_b + first * k_stride_t + (i_hv // (HV // H)).to(tl.int64) * k_stride_h
    p_out = out + i_b * out_stride_b + i_hv.to(tl.int64) * out_stride_h
    o0 = tl.arange(0, 16)
    m0 = o0 < n_rows
    # Without g or beta the next eight names are passed around but never read.
    b_g0 = m0
    b_g1 = m0
    b_g2 = m0
    b_g3 = m0
    b_beta0 = m0
    b_beta1 = m0
    b_beta2 = m0
    b_beta3 = m0
    if HAS_G:
        p_g = g + i_b * g_stride_b + first * g_stride_t + i_hv.to(tl.int64) * g_stride_h
        b_g0 = _values(p_g, o0, g_stride_t, m0)
    if HAS_BETA:
        p_beta = beta + i_b * beta_stride_b + first * beta_stride_t + i_hv.to(tl.int64) * beta_stride_h
        b_beta0 = _values(p_beta, o0, beta_stride_t, m0)
    b_l00 = tl.zeros([16, 16], tl.float32)
    if NB > 1:
        o1 = 16 + o0
        m1 = o1 < n_rows
        if HAS_G:
            b_g1 = _values(p_g, o1, g_stride_t, m1)
        if HAS_BETA:
            b_beta1 = _values(p_beta, o1, beta_stride_t, m1)
        b_l10 = tl.zeros([16, 16], tl.float32)
        b_l11 = tl.zeros([16, 16], tl.float32)
    if NB > 2:
        o2 = 32 + o0
        o3 = 48 + o0
        m2 = o2 < n_rows
        m3 = o3 < n_rows
        if HAS_G:
            b_g2 = _values(p_g, o2, g_stride_t, m2)
            b_g3 = _values(p_g, o3, g_stride_t, m3)
        if HAS_BETA:
            b_beta2 = _values(p_beta, o2, beta_stride_t, m2)
            b_beta3 = _values(p_beta, o3, beta_stride_t, m3)
        b_l20 = tl.zeros([16, 16], tl.float32)
        b_l21 = tl.zeros([16, 16], tl.float32)
        b_l22 = tl.zeros([16, 16], tl.float32)
        b_l30 = tl.zeros([16, 16], tl.float32)
        b_l31 = tl.zeros([16, 16], tl.float32)
        b_l32 = tl.zeros([16, 16], tl.float32)
        b_l33 = tl.zeros([16, 16], tl.float32)

    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_k0 = _keys(p_k + o0[:, None] * k_stride_t, o_k, m0, K, INTERPRETED)
        b_l00 = tl.dot(b_k0, tl.trans(b_k0), b_l00, input_precision="ieee")
        if NB > 1:
            b_k1 = _keys(p_k + o1[:, None] * k_stride_t, o_k, m1, K, INTERPRETED)
            b_l10 = tl.dot(b_k1, tl.trans(b_k0), b_l10, input_precision="ieee")
            b_l11 = tl.dot(b_k1, tl.trans(b_k1), b_l11, input_precision="ieee")
        if NB > 2:
            b_k2 = _keys(p_k + o2[:, None] * k_stride_t, o_k, m2, K, INTERPRETED)
            b_l20 = tl.dot(b_k2, tl.trans(b_k0), b_l20, input_precision="ieee")
            b_l21 = tl.dot(b_k2, tl.trans(b_k1), b_l21, input_precision="ieee")
            b_l22 = tl.dot(b_k2, tl.trans(b_k2), b_l22, input_precision="ieee")
            b_k3 = _keys(p_k + o3[:, None] * k_stride_t, o_k, m3, K, INTERPRETED)
            b_l30 = tl.dot(b_k3, tl.trans(b_k0), b_l30, input_precision="ieee")
            b_l31 = tl.dot(b_k3, tl.trans(b_k1), b_l31, input_precision="ieee")
            b_l32 = tl.dot(b_k3, tl.trans(b_k2), b_l32, input_precision="ieee")
            b_l33 = tl.dot(b_k3, tl.trans(b_k3), b_l33, input_precision="ieee")

    p_rows = p_out + first * out_stride_t
    b_zero = tl.zeros([16, 16], tl.float32)
    b_l00 = _gated(b_l00, b_g0, b_g0, b_beta0, m0, True, HAS_G, HAS_BETA)
    if NB == 1:
        _put(p_rows, _leaf(b_l00), 0, 0, out_stride_t, n_rows, INTERPRETED)
    if NB > 1:
        b_l10 = _gated(b_l10, b_g1, b_g0, b_beta1, m1, False, HAS_G, HAS_BETA)
        b_l11 = _gated(b_l11, b_g1, b_g1, b_beta1, m1, True, HAS_G, HAS_BETA)
        b_x00, b_x10, b_x11 = _pair(b_l00, b_l10, b_l11, PRECISION)
        _put(p_rows, b_x00, 0, 0, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_x10, 1, 0, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_x11, 1, 1, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_zero, 0, 1, out_stride_t, n_rows, INTERPRETED)
    if NB > 2:
        b_l22 = _gated(b_l22, b_g2, b_g2, b_beta2, m2, True, HAS_G, HAS_BETA)
        b_l32 = _gated(b_l32, b_g3, b_g2, b_beta3, m3, False, HAS_G, HAS_BETA)
        b_l33 = _gated(b_l33, b_g3, b_g3, b_beta3, m3, True, HAS_G, HAS_BETA)
        b_x22, b_x32, b_x33 = _pair(b_l22, b_l32, b_l33, PRECISION)
        b_l20 = _gated(b_l20, b_g2, b_g0, b_beta2, m2, False, HAS_G, HAS_BETA)
        b_l21 = _gated(b_l21, b_g2, b_g1, b_beta2, m2, False, HAS_G, HAS_BETA)
        b_l30 = _gated(b_l30, b_g3, b_g0, b_beta3, m3, False, HAS_G, HAS_BETA)
        b_l31 = _gated(b_l31, b_g3, b_g1, b_beta3, m3, False, HAS_G, HAS_BETA)
        # The lower left quarter is -X_lower (L X_upper); L is overwritten by L X_upper, column 1 last.
        b_l20 = _mul(b_l20, b_x00, PRECISION) + _mul(b_l21, b_x10, PRECISION)
        b_l21 = _mul(b_l21, b_x11, PRECISION)
        b_l30 = _mul(b_l30, b_x00, PRECISION) + _mul(b_l31, b_x10, PRECISION)
        b_l31 = _mul(b_l31, b_x11, PRECISION)
        _put(p_rows, -_mul(b_x22, b_l20, PRECISION), 2, 0, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, -_mul(b_x22, b_l21, PRECISION), 2, 1, out_stride_t, n_rows, INTERPRETED)
        b_x30 = -_mul(b_x32, b_l20, PRECISION) - _mul(b_x33, b_l30, PRECISION)
        b_x31 = -_mul(b_x32, b_l21, PRECISION) - _mul(b_x33, b_l31, PRECISION)
        _put(p_rows, b_x30, 3, 0, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_x31, 3, 1, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_x22, 2, 2, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_x32, 3, 2, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_x33, 3, 3, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_zero, 0, 2, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_zero, 0, 3, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_zero, 1, 2, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_zero, 1, 3, out_stride_t, n_rows, INTERPRETED)
        _put(p_rows, b_zero, 2, 3, out_stride_t, n_rows, INTERPRETED)

    if PACKED:  # rows after the last sequence: shared among the programs of this head
        o_col = tl.arange(0, BT)
        o_row = tl.arange(0, 16)
        past = tl.load(cu_seqlens + N).to(tl.int64)
        for row in range(past + i_t * 16, T, NT * 16):
            p_x = p_out + row * out_stride_t + o_row[:, None] * out_stride_t + o_col[None, :]
            tl.store(p_x, tl.zeros([16, BT], p_x.dtype.element_ty), mask=(row + o_row < T)[:, None])


def refuse(k, g, beta, cu_seqlens, chunk_indices, **options) -> str | None:
    """Why this kernel does not take a checked call. It takes all of them."""
    return None


def plan(
    k: torch.Tensor,
    g: torch.Tensor | None,
    beta: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    chunk_indices: torch.Tensor | None,
    *,
    chunk_size: int,
    output_dtype: torch.dtype,
    head_first: bool,
    output_head_first: bool,
    num_cores: int,
    precision: str = "ieee",
) -> tuple[torch.Tensor, list[Launch]]:
    """The result, still unwritten, and the one launch that writes all of it. Arguments as in op.py."""
    k = last_axis_dense(k)
    B, T, H, K = (k.shape[i] for i in ((0, 2, 1, 3) if head_first else (0, 1, 2, 3)))
    HV = next((x.shape[1 if head_first else 2] for x in (g, beta) if x is not None), H)
    shape = (B, HV, T, chunk_size) if output_head_first else (B, T, HV, chunk_size)
    NT = triton.cdiv(T, chunk_size) if cu_seqlens is None else chunk_indices.shape[0]
    if NT == 0:  # packed, and every sequence is empty
        return torch.zeros(shape, dtype=output_dtype, device=k.device), []
    out = torch.empty(shape, dtype=output_dtype, device=k.device)
    strides = {}
    for name, x, layout in (("k", k, head_first), ("g", g, head_first), ("beta", beta, head_first),
                            ("out", out, output_head_first)):
        values = (0, 0, 0) if x is None else token_first_strides(x, layout)
        strides |= {f"{name}_stride_{axis}": value for axis, value in zip("bth", values, strict=True)}
    launch = Launch(
        name="fused_kkt_solve",
        kernel=fused_kkt_solve_kernel,
        grid=(NT * B * HV,),
        args=dict(k=k, g=g, beta=beta, out=out, cu_seqlens=cu_seqlens, chunk_indices=chunk_indices, T=T, NT=NT,
                  N=0 if cu_seqlens is None else cu_seqlens.shape[0] - 1, **strides),
        constants=dict(H=H, HV=HV, K=K, BT=chunk_size, BK=min(64, max(16, triton.next_power_of_2(K))),
                       HAS_G=g is not None, HAS_BETA=beta is not None, PACKED=cu_seqlens is not None,
                       PRECISION=precision, INTERPRETED=INTERPRETED),
    )
    return out, [launch]
