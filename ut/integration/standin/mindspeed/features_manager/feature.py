class MindSpeedFeature:
    def __init__(self, feature_name, optimization_level=2):
        self.feature_name = feature_name.replace("-", "_")
        self.optimization_level = optimization_level

    def is_need_apply(self, args):
        wanted = self.optimization_level <= args.optimization_level and getattr(args, self.feature_name, None)
        return bool(wanted) or self.optimization_level == 0

    def dependency_check(self, args, name):
        if getattr(args, self.feature_name, None) and not getattr(args, name, None):
            raise AssertionError(f"{self.feature_name} requires {name}.")

    def register_args(self, parser):
        pass

    def validate_args(self, args):
        pass

    def register_patches(self, patch_manager, args):
        pass
