"""MindSpeed integration: one flag, five call sites. Importing this package imports neither MindSpeed nor Triton.

consumers (what) · pairing (whether) · forward (how) · feature, install, imports, fsdp2 (when) · log, report (told).
"""
from .install import install, install_direct, uninstall
from .report import status

__all__ = ["install", "install_direct", "status", "uninstall"]
