"""Fused Gated DeltaNet `chunk_gated_delta_rule_fwd_kkt_solve` for MindSpeed on Ascend A2/A3.

Importing this package needs torch only and touches no device; kernels and MindSpeed are looked for at first use.
"""
from .op import chunk_gated_delta_rule_fwd_kkt_solve
from .paths import status

__version__ = "0.1.0"
__all__ = ["chunk_gated_delta_rule_fwd_kkt_solve", "install", "status", "__version__"]


def install(*args, **kwargs):
    """Register the operator with MindSpeed; see `mindspeed_kkt_plugin.integration.install`."""
    from .integration import install as install_into_mindspeed

    return install_into_mindspeed(*args, **kwargs)
