"""Gated K K^T and triangular inverse of the chunked Gated Delta Rule in one Triton kernel for Ascend A2/A3.

op (the operator) · checks, varlen (arguments) · paths (which implementation) · kernels (Ascend) · reference (torch) ·
switch (whether a forward uses it). Importing this package imports torch only.
"""
from .op import chunk_gated_delta_rule_fwd_kkt_solve
from .switch import enable_fused_kkt_solve, fused_kkt_solve_takes

__all__ = ["chunk_gated_delta_rule_fwd_kkt_solve", "enable_fused_kkt_solve", "fused_kkt_solve_takes"]
