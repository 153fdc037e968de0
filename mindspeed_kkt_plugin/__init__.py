"""Fused Gated DeltaNet `chunk_gated_delta_rule_fwd_kkt_solve` for MindSpeed on Ascend A2/A3.

Importing this package needs torch only and touches no device; kernels and MindSpeed are looked for at first use.
"""
from .integration import install, status, uninstall
from .op import chunk_gated_delta_rule_fwd_kkt_solve

__version__ = "0.1.0"
__all__ = ["chunk_gated_delta_rule_fwd_kkt_solve", "install", "status", "uninstall", "__version__"]
