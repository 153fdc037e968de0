from ut.integration.reference_ops import chunk_scaled_dot_kkt_fwd  # noqa: F401
