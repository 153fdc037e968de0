"""The fused kkt_solve operator of MindSpeed, or nothing where the installed MindSpeed does not have it yet.

USE_FUSED_GDN_KKT_SOLVE=1 switches it on. The two operators it replaces are in triton/ and triton_core/.
"""
try:
    from upstream_package import chunk_gated_delta_rule_fwd_kkt_solve, fused_kkt_solve_takes
except ImportError:
    chunk_gated_delta_rule_fwd_kkt_solve = None

    def fused_kkt_solve_takes(*args, **kwargs) -> bool:
        return False


__all__ = ["chunk_gated_delta_rule_fwd_kkt_solve", "fused_kkt_solve_takes"]
