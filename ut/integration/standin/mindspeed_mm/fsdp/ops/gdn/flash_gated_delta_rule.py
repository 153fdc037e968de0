import torch

from mindspeed_mm.fsdp.ops.gdn.triton.solve_tril import solve_tril
from ut.integration.reference_ops import chunk_scaled_dot_kkt_fwd_head_first as chunk_scaled_dot_kkt_fwd

ARCH35 = False


def is_arch35():
    return ARCH35


def flash_chunk_gated_delta_rule_fwd(k, g, beta, cu_seqlens=None, chunk_indices=None, chunk_size=64):
    """Stands for M3: head-first k, a chunk table for kkt and a dict of them for solve."""
    A = chunk_scaled_dot_kkt_fwd(
        k=k, g=g, beta=beta, cu_seqlens=cu_seqlens, chunk_indices=(chunk_indices or {}).get(str(chunk_size)),
        chunk_size=chunk_size, output_dtype=torch.float32,
    )
    if is_arch35():
        A = solve_tril(A=A, cu_seqlens=cu_seqlens, chunk_indices=chunk_indices, output_dtype=k.dtype)
    else:
        A = solve_tril(A=A, cu_seqlens=cu_seqlens, output_dtype=k.dtype)
    A = A.transpose(1, 2).contiguous()
    return g, A.float().sum(-1), A, None
