"""`--use-fused-gdn-kkt-solve`: the flag, its validation, and the switch that Gated DeltaNet forwards ask.

The operator is in mindspeed/ops/triton/kkt_solve. Off by default; with the flag off nothing is imported.
"""
from argparse import ArgumentParser, Namespace

from mindspeed.features_manager.feature import MindSpeedFeature

CHUNK_SIZES = (16, 32, 64)


class FusedGdnKktSolveFeature(MindSpeedFeature):
    # the plugin's: flag and validation

    def register_patches(self, patch_manager, args: Namespace) -> None:
        """No name is replaced: the forwards hold both ways and ask the switch at each call."""
        from upstream_package import enable_fused_kkt_solve

        enable_fused_kkt_solve()
