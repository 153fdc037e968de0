"""MindSpeed integration: one flag, five call sites. Importing this package imports neither MindSpeed nor Triton.

consumers (what) · pairing (whether) · forward (how) · routes, feature, imports, fsdp2 (when) · log, report (told).
"""
from .report import status
from .routes import install, install_direct, uninstall

__all__ = ["install", "install_direct", "status", "uninstall"]
