"""First kernel of the two-call chain: gated K K^T, written to global memory in fp32 or as asked.

Persistent programs; a task is one chunk, and all its value heads are done in turn so that a key head's product serves
its whole group. The inverse is in unfused_solve.py.
"""
from __future__ import annotations

import torch
import triton
import triton.language as tl

from .launch import Launch
from .shared import ASCEND, INTERPRETED, chunk_place, gate, last_axis_dense, programs, round_for, token_first_strides


@triton.jit(do_not_specialize=["T", "NT", "TASKS"])
def kkt_kernel(
    k, g, beta, A, cu_seqlens, chunk_indices, T, NT, TASKS,
    k_stride_b, k_stride_t, k_stride_h,
    g_stride_b, g_stride_t, g_stride_h,
    beta_stride_b, beta_stride_t, beta_stride_h,
    H: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
    HAS_G: tl.constexpr, HAS_BETA: tl.constexpr, PACKED: tl.constexpr, INTERPRETED: tl.constexpr,
):
    """Steps: product of the chunk's keys per key head; gate, beta and mask per value head; store."""
    o_t = tl.arange(0, BT)
    # Compared in fp32: vector cores have no int32 "greater than".
    m_lower = o_t.to(tl.float32)[:, None] > o_t.to(tl.float32)[None, :]
    for i_task in range(tl.program_id(0), TASKS, tl.num_programs(0)):
        i_b = (i_task // NT).to(tl.int64)
        first, n_rows = chunk_place(cu_seqlens, chunk_indices, i_task % NT, T, BT, PACKED)
        m_t = o_t < n_rows
        for i_h in range(H):
            i_key = tl.cast(i_h, tl.int64)  # head-first, a head may start beyond 2^31 elements
            b_s = tl.zeros([BT, BT], tl.float32)
            for i_k in range(0, K, BK):
                o_k = i_k + tl.arange(0, BK)
                p_k = k + i_b * k_stride_b + first * k_stride_t + i_key * k_stride_h
                m_k = m_t[:, None] if K % BK == 0 else m_t[:, None] & (o_k < K)[None, :]
                b_k = tl.load(p_k + o_t[:, None] * k_stride_t + o_k[None, :], mask=m_k, other=0.0)
                if INTERPRETED:  # Triton 3.2's interpreter multiplies the bit patterns of bf16
                    b_k = b_k.to(tl.float32)
                b_s = tl.dot(b_k, tl.trans(b_k), b_s, input_precision="ieee")
            for i_v in range(HV // H):
                i_hv = i_key * (HV // H) + i_v
                b_l = b_s
                if HAS_G:
                    p_g = g + i_b * g_stride_b + first * g_stride_t + i_hv * g_stride_h
                    b_g = tl.load(p_g + o_t * g_stride_t, mask=m_t, other=0.0).to(tl.float32)
                    b_l = b_l * gate(b_g, b_g)
                if HAS_BETA:
                    p_beta = beta + i_b * beta_stride_b + first * beta_stride_t + i_hv * beta_stride_h
                    b_beta = tl.load(p_beta + o_t * beta_stride_t, mask=m_t, other=0.0).to(tl.float32)
                    b_l = b_l * b_beta[:, None]
                p_A = A + ((i_b * T + first) * HV + i_hv) * BT + o_t[:, None] * (HV * BT) + o_t[None, :]
                b_l = tl.where(m_lower, b_l, 0.0)
                tl.store(p_A, round_for(b_l, p_A, INTERPRETED), mask=m_t[:, None])


def launch_kkt(k, g, beta, cu_seqlens, chunk_indices, A: torch.Tensor, *, head_first: bool, num_cores: int) -> Launch:
    """Write A `[B, T, HV, BT]`, contiguous. Rows outside every sequence are not written."""
    B, T, HV, BT = A.shape
    k = last_axis_dense(k)
    H, K = k.shape[1 if head_first else 2], k.shape[3]
    NT = triton.cdiv(T, BT) if cu_seqlens is None else chunk_indices.shape[0]
    strides = dict(zip(("k_stride_b", "k_stride_t", "k_stride_h"), token_first_strides(k, head_first), strict=True))
    gates = {}
    for name, x in (("g", g), ("beta", beta)):
        x = x if x is None or head_first else x.transpose(1, 2)
        if ASCEND and x is not None:  # a strided row of g is a gather there; public chains copy as well
            x = x.contiguous()
        gates[name] = x
        values = (0, 0, 0) if x is None else token_first_strides(x, True)
        strides |= {f"{name}_stride_{axis}": value for axis, value in zip("bth", values, strict=True)}
    return Launch(
        name="kkt",
        kernel=kkt_kernel,
        grid=(programs(B * NT, num_cores),),
        args=dict(k=k, A=A, cu_seqlens=cu_seqlens, chunk_indices=chunk_indices, T=T, NT=NT, TASKS=B * NT, **gates,
                  **strides),
        constants=dict(H=H, HV=HV, K=K, BT=BT, BK=min(128, max(16, triton.next_power_of_2(K))), HAS_G=g is not None,
                       HAS_BETA=beta is not None, PACKED=cu_seqlens is not None, INTERPRETED=INTERPRETED),
    )
