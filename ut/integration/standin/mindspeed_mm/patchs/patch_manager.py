"""The YAML-driven patches of MindSpeed-MM on Megatron: always forced."""
from mindspeed.patch_utils import MindSpeedPatchesManager


class PatchesManager:
    configs = {"ae_float32": []}

    @staticmethod
    def apply_patches_from_config(patch):
        for key in patch.keys() & PatchesManager.configs.keys():
            if patch[key]:
                for target, new in PatchesManager.configs[key]:
                    MindSpeedPatchesManager.register_patch(target, new, force_patch=True)
        MindSpeedPatchesManager.apply_patches()
