import argparse

from mindspeed.features_manager.features_manager import MindSpeedFeaturesManager


class FeatureAdaptor:
    @classmethod
    def get_mindspeed_llm_args(cls):
        import mindspeed_llm.features_manager  # noqa: F401

        parser = argparse.ArgumentParser(allow_abbrev=False)
        MindSpeedFeaturesManager.register_features_args(parser)
        return parser.parse_known_args()[0]

    @classmethod
    def execute(cls):
        MindSpeedFeaturesManager.remove_patches()
        MindSpeedFeaturesManager.apply_features_patches(cls.get_mindspeed_llm_args())


def repatch(config):
    MindSpeedFeaturesManager.remove_patches()
    args = FeatureAdaptor.get_mindspeed_llm_args()
    vars(args).update(config)
    MindSpeedFeaturesManager.apply_features_patches(args)


FeatureAdaptor.execute()
