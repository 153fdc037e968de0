from .feature import MindSpeedFeature
from .features_manager import MindSpeedFeaturesManager


class RequirementsBasicFeature(MindSpeedFeature):
    def __init__(self):
        super().__init__("requirements-basic", optimization_level=0)

    def register_args(self, parser):
        parser.add_argument("--optimization-level", type=int, default=2)


MindSpeedFeaturesManager.set_features_list([RequirementsBasicFeature()])
