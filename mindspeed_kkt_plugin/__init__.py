"""Fused Gated DeltaNet `chunk_gated_delta_rule_fwd_kkt_solve` for MindSpeed on Ascend A2/A3."""

__version__ = "0.1.0"
