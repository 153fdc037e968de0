from ut.integration.reference_ops import solve_tril  # noqa: F401
