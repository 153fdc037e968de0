"""Whether a forward uses the fused operator: off unless the feature or the environment says so, then call by call.

Asked by forwards that otherwise call chunk_scaled_dot_kkt_fwd and solve_tril. What a kernel takes is said by itself.
"""
from __future__ import annotations

import logging
import os
from typing import Any

from . import paths
from .checks import check_arguments

log = logging.getLogger("upstream_package")

# Back ends without MindSpeed's feature manager (FSDP2) have no flag that reaches here.
_enabled = os.environ.get("USE_FUSED_GDN_KKT_SOLVE", "0") == "1"
_refusals: set[str] = set()


def enable_fused_kkt_solve(on: bool = True) -> None:
    """What `--use-fused-gdn-kkt-solve` does."""
    global _enabled
    _enabled = on


def fused_kkt_solve_takes(k, g=None, beta=None, cu_seqlens=None, chunk_size=64, output_dtype=None,
                          *, head_first=False, output_head_first=False) -> bool:
    """Whether chunk_gated_delta_rule_fwd_kkt_solve should be called with these arguments: it is switched on, and its
    kernel takes them. Otherwise the caller runs the two operators; why is logged once. Reads attributes only, so that
    nothing waits for the device.
    """
    if not _enabled:
        return False
    call: dict[str, Any] = dict(k=k, g=g, beta=beta, cu_seqlens=cu_seqlens, chunk_indices=None, chunk_size=chunk_size,
                                output_dtype=output_dtype or k.dtype, head_first=head_first,
                                output_head_first=output_head_first)
    reason = _refusal(call)
    if reason is not None and reason not in _refusals:
        _refusals.add(reason)
        log.warning("the two operators run instead of the fused kkt_solve: %s", reason)
    return reason is None


def _refusal(call: dict[str, Any]) -> str | None:
    try:
        check_arguments(**call)
    except (TypeError, ValueError) as error:
        return str(error)
    return next(path for path in paths.PATHS if path.name == "ascend").refuse(paths.Call(**call))
