"""The contract of MindSpeedPatchesManager: deferred, by name and identity, wrappers around a replacement."""
import importlib
import sys


class Patch:
    def __init__(self, target, new, create_dummy):
        self.owner_name, _, self.name = target.rpartition(".")
        self.owner = self.orig_func = self.patch_func = None
        self.wrappers = []
        self.is_applied = False
        self.set_patch_func(new)

    def set_patch_func(self, new, force_patch=False):
        if getattr(new, "__name__", "").endswith(("wrapper", "decorator")):
            if new not in self.wrappers:
                self.wrappers.append(new)
        elif self.patch_func and not force_patch:
            raise RuntimeError(f"the patch of {self.name} exist !")
        else:
            self.patch_func = new
        self.is_applied = False

    def apply_patch(self):
        if self.is_applied:
            return
        owner = self._find_owner()
        if isinstance(owner, type) and not hasattr(owner, self.name):
            raise RuntimeError(f"no exist {self.name} of {owner}")
        if not hasattr(owner, self.name):
            setattr(owner, self.name, None)  # a misspelt name is planted, as in the real one
        current = getattr(owner, self.name)
        if self.owner is None:
            self.owner, self.orig_func = owner, current
        final = self.patch_func or self.orig_func
        for wrapper in self.wrappers:
            final = wrapper(final)
        setattr(self.owner, self.name, final)
        for module in list(sys.modules.values()):
            if hasattr(module, self.name) and getattr(module, self.name) is current:
                setattr(module, self.name, final)
        self.is_applied, self.final = True, final

    def _find_owner(self):
        try:
            return importlib.import_module(self.owner_name)
        except ModuleNotFoundError:
            parent, _, name = self.owner_name.rpartition(".")
            if parent and hasattr(importlib.import_module(parent), name):
                return getattr(importlib.import_module(parent), name)
            raise

    def remove_patch(self):
        for key, module in list(sys.modules.items()):
            if "mindspeed" not in key and hasattr(module, self.name) and self.is_applied:
                if getattr(module, self.name) is self.final:
                    setattr(module, self.name, self.orig_func)
        self.patch_func, self.is_applied = None, False
        self.wrappers.clear()


class MindSpeedPatchesManager:
    patches_info = {}

    @staticmethod
    def register_patch(target, new=None, force_patch=False, create_dummy=False):
        info = MindSpeedPatchesManager.patches_info
        if target in info:
            info[target].set_patch_func(new, force_patch)
        else:
            info[target] = Patch(target, new, create_dummy)

    @staticmethod
    def apply_patches():
        for patch in MindSpeedPatchesManager.patches_info.values():
            patch.apply_patch()

    @staticmethod
    def remove_patches():
        for patch in MindSpeedPatchesManager.patches_info.values():
            patch.remove_patch()
