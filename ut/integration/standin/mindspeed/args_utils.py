"""The early, permissive parser: unknown flags become attributes, and the result is kept."""
import argparse

from mindspeed.features_manager import MindSpeedFeaturesManager

_ARGS = None


def get_mindspeed_args():
    global _ARGS
    if _ARGS is None:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        MindSpeedFeaturesManager.register_features_args(parser)
        _ARGS, unknown = parser.parse_known_args()
        for flag in unknown:
            if flag.startswith("--"):
                setattr(_ARGS, flag[2:].replace("-", "_"), True)
    return _ARGS
