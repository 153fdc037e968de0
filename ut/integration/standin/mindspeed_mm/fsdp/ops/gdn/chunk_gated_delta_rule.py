import torch

from mindspeed_mm.fsdp.ops.gdn.triton.chunk_scaled_dot_kkt import chunk_scaled_dot_kkt_fwd
from mindspeed_mm.fsdp.ops.gdn.triton.solve_tril import solve_tril


def chunk_gated_delta_rule_fwd(k, g, beta, cu_seqlens=None, chunk_size=64):
    """Stands for M1: A stays `[B, T, H, BT]`."""
    A = chunk_scaled_dot_kkt_fwd(
        k=k, g=g, beta=beta, cu_seqlens=cu_seqlens, chunk_size=chunk_size, output_dtype=torch.float32
    )
    A = solve_tril(A=A, cu_seqlens=cu_seqlens, output_dtype=k.dtype)
    return g, A.float().sum(-1), A, None


def chunk_gated_delta_rule(*args, **kwargs):
    return chunk_gated_delta_rule_fwd(*args, **kwargs)
