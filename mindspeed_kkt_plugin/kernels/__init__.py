"""Triton kernels, one file per target. Importing this package imports no Triton."""
