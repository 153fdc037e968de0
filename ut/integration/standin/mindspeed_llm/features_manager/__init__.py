"""Replaces MindSpeed's list by its own when imported."""
from mindspeed.features_manager.feature import MindSpeedFeature
from mindspeed.features_manager.features_manager import MindSpeedFeaturesManager


class GdnFeature(MindSpeedFeature):
    def __init__(self):
        super().__init__("gdn", optimization_level=0)

    def register_args(self, parser):
        parser.add_argument("--optimization-level", type=int, default=2)
        parser.add_argument("--use-triton-gdn", action="store_true")
        parser.add_argument("--mamba-chunk-size", type=int, default=256)


MindSpeedFeaturesManager.set_features_list([GdnFeature()])
