"""The Gated DeltaNet operators of the consumers' forwards in plain torch, in fp32, by chunks.

They replace MindSpeed's kernels, which cannot run on a CPU, so that the real forwards can. Simple rather than fast;
`recurrent` is the token-by-token definition that they are checked with.
"""
from __future__ import annotations

import torch

from mindspeed_kkt_plugin import reference
from mindspeed_kkt_plugin.varlen import chunk_rows
from ut.inputs import chunk_cumsum


def _offsets(cu_seqlens):
    return torch.tensor(cu_seqlens) if isinstance(cu_seqlens, list) else cu_seqlens


def _chunks(length, chunk_size, cu_seqlens):
    """(rows of the chunk, its sequence) in order."""
    rows, valid = chunk_rows(length, chunk_size, cu_seqlens)
    offsets = [0, length] if cu_seqlens is None else cu_seqlens.tolist()
    for chunk, keep in zip(rows, valid, strict=True):
        first = int(chunk[0])
        sequence = max(i for i, offset in enumerate(offsets[:-1]) if offset <= first)
        yield chunk[keep], sequence


def chunk_local_cumsum(g, chunk_size, reverse=False, cu_seqlens=None, head_first=False, output_dtype=torch.float32):
    return chunk_cumsum(g.float(), chunk_size, cu_seqlens).to(output_dtype)


def chunk_scaled_dot_kkt_fwd(k, g=None, gk=None, beta=None, cu_seqlens=None, chunk_size=64, output_dtype=torch.float32):
    return reference.kkt(k, g, beta, cu_seqlens, chunk_size, dtype=torch.float32).to(output_dtype)


def chunk_scaled_dot_kkt_fwd_head_first(
    k, g=None, gk=None, beta=None, cu_seqlens=None, chunk_indices=None, chunk_size=64, output_dtype=torch.float32
):
    return chunk_scaled_dot_kkt_fwd(k.transpose(1, 2), g, gk, beta, cu_seqlens, chunk_size, output_dtype)


def solve_tril(A, cu_seqlens=None, chunk_indices=None, output_dtype=torch.float):
    return reference.solve(A, cu_seqlens, torch.float32).to(A.dtype if output_dtype is None else output_dtype)


def l2norm_fwd(x, eps=1e-6):
    rstd = torch.rsqrt(x.float().square().sum(-1) + eps)
    return (x.float() * rstd[..., None]).to(x.dtype), rstd


def recompute_w_u_fwd(k, v, beta, A, g, cu_seqlens=None):
    w, u = (torch.zeros_like(x, dtype=torch.float32) for x in (k, v))
    for rows, _ in _chunks(k.shape[1], A.shape[-1], cu_seqlens):
        inverse = A[:, rows, :, : len(rows)].float().transpose(1, 2)  # [B, H, n, n]
        scale = beta[:, rows, :, None].float()
        u[:, rows] = (inverse @ (v[:, rows] * scale).transpose(1, 2).float()).transpose(1, 2)
        keys = k[:, rows].float() * scale * g[:, rows, :, None].exp()
        w[:, rows] = (inverse @ keys.transpose(1, 2)).transpose(1, 2)
    return w.to(k.dtype), u.to(v.dtype)


def chunk_gated_delta_rule_fwd_h(
    k, w, u, g, initial_state=None, output_final_state=False, chunk_size=64, cu_seqlens=None
):
    (B, T, H, K), V = k.shape, u.shape[-1]
    states, v_new = [], torch.zeros_like(u)
    last = torch.zeros(B if cu_seqlens is None else len(cu_seqlens) - 1, H, K, V)
    if initial_state is not None:
        last.copy_(initial_state)
    for rows, sequence in _chunks(T, chunk_size, cu_seqlens):
        own = slice(None) if cu_seqlens is None else slice(sequence, sequence + 1)
        state = last[own].clone()
        states.append(state)
        keys, gates = k[:, rows].float().transpose(1, 2), g[:, rows].transpose(1, 2)  # [B, H, n, K], [B, H, n]
        new = u[:, rows].float().transpose(1, 2) - w[:, rows].float().transpose(1, 2) @ state
        v_new[:, rows] = new.transpose(1, 2).to(u.dtype)
        rest = (gates[..., -1:] - gates).exp()[..., None]
        last[own] = state * gates[..., -1, None, None].exp() + keys.transpose(-1, -2) @ (new * rest)
    return torch.stack(states, dim=1), v_new, last if output_final_state else None


def chunk_fwd_o(q, k, v, h, g, scale, cu_seqlens=None, chunk_size=64):
    out = torch.zeros_like(v)
    for i, (rows, _) in enumerate(_chunks(q.shape[1], chunk_size, cu_seqlens)):
        queries, keys, values = (x[:, rows].float().transpose(1, 2) for x in (q, k, v))
        gates = g[:, rows].transpose(1, 2)
        gap = (gates[..., :, None] - gates[..., None, :]).tril()
        inside = (queries @ keys.transpose(-1, -2) * gap.exp()).tril() @ values
        out[:, rows] = (scale * (inside + (queries * gates.exp()[..., None]) @ h[:, i])).transpose(1, 2).to(v.dtype)
    return out


def _swap(*tensors):
    return [x.transpose(1, 2) for x in tensors]


class npu_ops:
    """The head-first AscendC operators under `torch.ops.npu` that L2, M2 and M3 call after the pair."""

    @staticmethod
    def npu_recompute_w_u_fwd(k, v, beta, A, chunk_size, g=None, gk=None, cu_seqlens=None, chunk_indices=None):
        return _contiguous(*_swap(*recompute_w_u_fwd(*_swap(k, v, beta, A, g), _offsets(cu_seqlens))))

    @staticmethod
    def npu_chunk_gated_delta_rule_fwd_h(k, w, u, g, gk=None, initial_state=None, cu_seqlens=None, chunk_indices=None,
                                         output_final_state=False, chunk_size=64, **_):
        h, v_new, last = chunk_gated_delta_rule_fwd_h(
            *_swap(k, w, u, g), initial_state, output_final_state, chunk_size, _offsets(cu_seqlens))
        return h, v_new.transpose(1, 2).contiguous(), last

    @staticmethod
    def npu_chunk_fwd_o(q, k, v, h, scale, g=None, g_gamma=None, cu_seqlens=None, chunk_indices=None, chunk_size=64,
                        **_):
        q, k, v, g = _swap(q, k, v, g)
        return chunk_fwd_o(q, k, v, h, g, scale, _offsets(cu_seqlens), chunk_size).transpose(1, 2).contiguous()


def _contiguous(*tensors):
    return [x.contiguous() for x in tensors]


def recurrent(q, k, v, g, beta, scale, cu_seqlens=None):
    """o by the definition: S = S e^g; S += beta k (v - k^T S)^T; o = scale q^T S, token by token, in fp32.

    g is the decay of each token, not cumulative.
    """
    out = torch.zeros_like(v, dtype=torch.float32)
    starts = {0} if cu_seqlens is None else set(cu_seqlens.tolist())
    for t in range(q.shape[1]):
        if t in starts:
            state = torch.zeros(*k.shape[:1], k.shape[2], k.shape[3], v.shape[3])
        key = k[:, t].float()
        state = state * g[:, t, :, None, None].exp()
        new = beta[:, t, :, None].float() * (v[:, t].float() - torch.einsum("bhk,bhkv->bhv", key, state))
        state = state + key[..., None] * new[..., None, :]
        out[:, t] = scale * torch.einsum("bhk,bhkv->bhv", q[:, t].float(), state)
    return out
