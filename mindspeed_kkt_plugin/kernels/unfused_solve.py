"""Second part of the two-call chain: inverse of I + L, as leaves of 16 x 16 and merges to 32 and 64.

Leaves of several chunks are substituted together; a merge is two small products. Each step goes through global
memory, as in the public chains. K K^T is in unfused_kkt.py.
"""
from __future__ import annotations

import torch
import triton
import triton.language as tl

from .launch import Launch
from .shared import ASCEND, INTERPRETED, chunk_place, programs, round_for

LEAVES_PER_TASK = 16  # three such tiles leave room in UB for double buffers; estimated no slower than 32


@triton.jit
def _substitute(b_l, NB: tl.constexpr):
    """(I + L)^-1 of `[NB, 16, 16]`: column j of L times row j of the result leaves all later rows. Any target."""
    o = tl.arange(0, 16)
    b_x = tl.zeros([NB, 16, 16], tl.float32) + tl.where(o[:, None] == o[None, :], 1.0, 0.0)[None, :, :]
    for j in range(15):
        b_column = tl.sum(tl.where(o[None, None, :] == j, b_l, 0.0), 2)
        b_row = tl.sum(tl.where(o[None, :, None] == j, b_x, 0.0), 1)
        b_x = tl.where(o[None, :, None] > j, b_x - b_column[:, :, None] * b_row[:, None, :], b_x)
    return b_x


@triton.jit
def _substitute_ascend(b_l, NB: tl.constexpr):
    """The same row by row, with the slices of triton-ascend instead of selects over whole tiles."""
    o = tl.arange(0, 16).to(tl.float32)
    b_x = -b_l
    for i in range(2, 16):
        b_row = tl.reshape(tl.extract_slice(b_l, [0, i, 0], [NB, 1, 16], [1, 1, 1]), (NB, 16))
        b_row = -b_row - tl.sum(b_row[:, :, None] * b_x, 1)
        b_x = tl.insert_slice(b_x, b_row[:, None, :], [0, i, 0], [NB, 1, 16], [1, 1, 1])
    return b_x + tl.where(o[:, None] == o[None, :], 1.0, 0.0)[None, :, :]


@triton.jit(do_not_specialize=["T", "NT", "TASKS", "BATCHES"])
def leaves_kernel(
    A, X, cu_seqlens, chunk_indices, T, NT, BATCHES, TASKS,
    HV: tl.constexpr, BT: tl.constexpr, NC: tl.constexpr,
    PACKED: tl.constexpr, ASCEND: tl.constexpr, INTERPRETED: tl.constexpr,
):
    """Task: the diagonal leaves of NC chunks of one head. X is `[B, T, HV, 16]`."""
    NL: tl.constexpr = BT // 16
    o_t = tl.arange(0, BT)
    o_i = tl.arange(0, 16)
    f_i = o_i.to(tl.float32)
    m_lower = (f_i[:, None] > f_i[None, :])[None, :, :]
    for i_task in range(tl.program_id(0), TASKS, tl.num_programs(0)):
        i_hv = i_task % HV
        i_batch = (i_task // HV) % BATCHES
        i_b = (i_task // (HV * BATCHES)).to(tl.int64)
        b_l = tl.zeros([NC * NL, 16, 16], tl.float32)
        for i_leaf in range(NC * NL):
            # Past the last chunk: that chunk once more, with the same result.
            i_t = tl.minimum(i_batch * NC + i_leaf // NL, NT - 1)
            first, n_rows = chunk_place(cu_seqlens, chunk_indices, i_t, T, BT, PACKED)
            row = i_leaf % NL * 16
            p_A = A + ((i_b * T + first + row) * HV + i_hv) * BT + row
            m_rows = (o_i < n_rows - row)[:, None]  # a mask of rows shortens the transfer; one of three axes would not
            b_a = tl.load(p_A + o_i[:, None] * (HV * BT) + o_i[None, :], mask=m_rows, other=0.0).to(tl.float32)
            if ASCEND:
                b_l = tl.insert_slice(b_l, b_a[None, :, :], [i_leaf, 0, 0], [1, 16, 16], [1, 1, 1])
            else:
                b_l = tl.where((tl.arange(0, NC * NL) == i_leaf)[:, None, None], b_a[None, :, :], b_l)
        b_l = tl.where(m_lower, b_l, 0.0)
        if ASCEND:
            b_x = _substitute_ascend(b_l, NC * NL)
            for i_c in range(NC):
                i_t = tl.minimum(i_batch * NC + i_c, NT - 1)
                first, n_rows = chunk_place(cu_seqlens, chunk_indices, i_t, T, BT, PACKED)
                b_c = tl.reshape(tl.extract_slice(b_x, [i_c * NL, 0, 0], [NL, 16, 16], [1, 1, 1]), (BT, 16))
                p_X = X + ((i_b * T + first) * HV + i_hv) * 16 + o_t[:, None] * (HV * 16) + o_i[None, :]
                tl.store(p_X, b_c.to(X.dtype.element_ty), mask=(o_t < n_rows)[:, None])
        else:  # one chunk a task
            first, n_rows = chunk_place(cu_seqlens, chunk_indices, i_batch, T, BT, PACKED)
            b_c = tl.reshape(_substitute(b_l, NL), (BT, 16))
            p_X = X + ((i_b * T + first) * HV + i_hv) * 16 + o_t[:, None] * (HV * 16) + o_i[None, :]
            tl.store(p_X, round_for(b_c, p_X, INTERPRETED), mask=(o_t < n_rows)[:, None])


@triton.jit(do_not_specialize=["T", "NT", "TASKS"])
def merge_kernel(
    A, X, out, cu_seqlens, chunk_indices, T, NT, TASKS,
    HV: tl.constexpr, BT: tl.constexpr, S: tl.constexpr,
    PACKED: tl.constexpr, PRECISION: tl.constexpr, INTERPRETED: tl.constexpr,
):
    """Task: one pair of S x S inverses X `[B, T, HV, S]` and the block of A below it make one of 2S x 2S in out."""
    PAIRS: tl.constexpr = BT // (2 * S)
    o_i = tl.arange(0, S)[:, None]
    o_j = tl.arange(0, S)[None, :]
    for i_task in range(tl.program_id(0), TASKS, tl.num_programs(0)):
        i_hv = i_task % HV
        i_pair = (i_task // HV) % PAIRS
        i_t = (i_task // (HV * PAIRS)) % NT
        i_b = (i_task // (HV * PAIRS * NT)).to(tl.int64)
        first, n_rows = chunk_place(cu_seqlens, chunk_indices, i_t, T, BT, PACKED)
        row = first + i_pair * (2 * S)
        n_rows -= i_pair * (2 * S)
        m_upper = o_i < n_rows
        m_lower = S + o_i < n_rows
        p_X = X + ((i_b * T + row) * HV + i_hv) * S + o_i * (HV * S) + o_j
        b_x0 = tl.load(p_X, mask=m_upper, other=0.0)
        b_x1 = tl.load(p_X + S * HV * S, mask=m_lower, other=0.0)
        p_A = A + ((i_b * T + row + S) * HV + i_hv) * BT + i_pair * (2 * S) + o_i * (HV * BT) + o_j
        b_a = tl.load(p_A, mask=m_lower, other=0.0).to(tl.float32)
        b_y = -tl.dot(tl.dot(b_x1, b_a, input_precision=PRECISION), b_x0, input_precision=PRECISION)
        p_out = out + ((i_b * T + row) * HV + i_hv) * (2 * S) + o_i * (HV * 2 * S) + o_j
        p_low = p_out + S * HV * 2 * S
        tl.store(p_out, round_for(b_x0, p_out, INTERPRETED), mask=m_upper)
        tl.store(p_out + S, tl.zeros([S, S], out.dtype.element_ty), mask=m_upper)
        tl.store(p_low, round_for(b_y, p_low, INTERPRETED), mask=m_lower)
        tl.store(p_low + S, round_for(b_x1, p_low, INTERPRETED), mask=m_lower)


def launch_solve(A, cu_seqlens, chunk_indices, out: torch.Tensor, *, num_cores: int, precision: str) -> list[Launch]:
    """Write out, contiguous like A `[B, T, HV, BT]`. Rows outside every sequence are not written."""
    B, T, HV, BT = A.shape
    NT = triton.cdiv(T, BT) if cu_seqlens is None else chunk_indices.shape[0]
    packing = dict(cu_seqlens=cu_seqlens, chunk_indices=chunk_indices)
    common = dict(HV=HV, BT=BT, PACKED=cu_seqlens is not None, INTERPRETED=INTERPRETED)

    chunks = LEAVES_PER_TASK * 16 // BT if ASCEND else 1
    batches = triton.cdiv(NT, chunks)
    inverse = out if BT == 16 else torch.empty((B, T, HV, 16), dtype=torch.float32, device=A.device)
    tasks = B * batches * HV
    launches = [Launch(
        name="leaves_16",
        kernel=leaves_kernel,
        grid=(programs(tasks, 2 * num_cores),),  # no product in it: both vector cores of a cube core take tasks
        args=dict(A=A, X=inverse, T=T, NT=NT, BATCHES=batches, TASKS=tasks, **packing),
        constants=dict(NC=chunks, ASCEND=ASCEND, **common),
    )]
    size = 16
    while size < BT:
        merged = out if 2 * size == BT else torch.empty((B, T, HV, 2 * size), dtype=torch.float32, device=A.device)
        tasks = B * NT * HV * (BT // (2 * size))
        launches.append(Launch(
            name=f"merge_{size}_to_{2 * size}",
            kernel=merge_kernel,
            grid=(programs(tasks, num_cores),),
            args=dict(A=A, X=inverse, out=merged, T=T, NT=NT, TASKS=tasks, **packing),
            constants=dict(S=size, PRECISION=precision, **common),
        ))
        size, inverse = 2 * size, merged
    return launches
