"""Install routes and their undoing: MindSpeed's feature list (the flag decides), or directly (installing decides).

What is put around a forward is in `forward.py`; the feature with flag and validation in `feature.py`.
"""
from __future__ import annotations

import sys
import types
from collections.abc import Callable

from . import log
from .consumers import CONSUMERS, Consumer
from .forward import consumer_of, is_fused_forward, wrapper_for
from .imports import namespace, stop_watching, when_imported

MM_PATCHES = "mindspeed_mm.patchs.patch_manager"
MM_SWITCH = "use_fused_gdn_kkt_solve"  # model.patch.<this>: true, in MindSpeed-MM's Megatron YAML
_undo: list[Callable[[], None]] = []  # in order of installing


def install() -> bool:
    """Add `--use-fused-gdn-kkt-solve` to MindSpeed's features; call it before the training adaptor is imported.

    After the adaptor it still works, if called before Megatron parses its arguments. Calling twice is harmless.
    Returns False, after a warning, where MindSpeed cannot be imported.
    """
    try:
        from mindspeed.features_manager.features_manager import MindSpeedFeaturesManager as manager

        from .feature import FusedGdnKktSolveFeature
    except ImportError as error:
        log.logger.warning("MindSpeed cannot be imported (%s): --use-fused-gdn-kkt-solve is not installed", error)
        return False
    feature = FusedGdnKktSolveFeature()
    if any(other.feature_name == feature.feature_name for other in manager.FEATURES_LIST):
        return True  # ours from before, or a MindSpeed that has the feature itself
    _keep_in_every_list(manager, feature)
    when_imported(MM_PATCHES, _offer_to_mm)
    _undo.append(lambda: stop_watching(MM_PATCHES))
    _catch_up(feature)
    return True


def _keep_in_every_list(manager: type, feature: object) -> None:
    """Append, and append again whenever the list is set: MindSpeed-LLM replaces MindSpeed's list by its own."""
    original = manager.__dict__["set_features_list"]

    def set_features_list(cls, features_list):
        original.__get__(None, cls)(features_list)
        if feature not in cls.FEATURES_LIST:
            cls.FEATURES_LIST.append(feature)

    def undo():
        if manager.__dict__["set_features_list"].__func__ is set_features_list:
            manager.set_features_list = original
        if feature in manager.FEATURES_LIST:
            manager.FEATURES_LIST.remove(feature)

    manager.set_features_list = classmethod(set_features_list)
    manager.FEATURES_LIST.append(feature)
    _undo.append(undo)


def _catch_up(feature) -> None:
    """If an adaptor has run already, do for this one feature what it did for the others."""
    from mindspeed.patch_utils import MindSpeedPatchesManager

    if llm := sys.modules.get("mindspeed_llm.tasks.megatron_adaptor_v2"):
        adaptor = namespace(llm).get("FeatureAdaptor")
        args = adaptor.get_mindspeed_llm_args() if adaptor else None
    elif "mindspeed.megatron_adaptor" in sys.modules:
        from mindspeed.args_utils import get_mindspeed_args

        args = get_mindspeed_args()
    else:
        return
    if args is not None and feature.is_need_apply(args):
        feature.register_patches(MindSpeedPatchesManager, args)
        MindSpeedPatchesManager.apply_patches()


def _offer_to_mm(module: types.ModuleType) -> None:
    """Let MindSpeed-MM's YAML switch the two forwards that its Megatron back end uses."""
    configs = module.PatchesManager.configs
    configs[MM_SWITCH] = [(c.target, wrapper_for(c)) for c in CONSUMERS if c.id in ("M1", "M3")]
    _undo.append(lambda: configs.pop(MM_SWITCH, None))


def install_direct() -> None:
    """Fuse every consumer that is imported, now or later, in this process; no flag is asked. Twice is harmless.

    For back ends without MindSpeed's features: MindSpeed-MM FSDP2 (`fsdp2.py`) and MindSpeed-LLM FSDP2 (`run.py`).
    """
    for consumer in CONSUMERS:
        patch_when_imported(consumer)
    announce_waiting()


def announce_waiting() -> None:
    waiting = [c.id for c in CONSUMERS if log.records[c.id].state == "waiting"]
    log.announce(f"fused kkt_solve installed; waits for the import of: {', '.join(waiting) or 'nothing'}")


def patch_when_imported(consumer: Consumer) -> None:
    """Without MindSpeed's manager, whose table must not grow while it imports its targets."""
    if when_imported(consumer.module, lambda module: _patch_loaded(consumer, module)):
        return
    if consumer.module in sys.modules:
        log.left_alone(consumer, "its module is being imported at this moment; install before or after that")
    else:
        log.waiting(consumer)


def _patch_loaded(consumer: Consumer, module: types.ModuleType) -> None:
    forward = namespace(module).get(consumer.function)
    if forward is None:
        log.left_alone(consumer, f"{consumer.module} has no {consumer.function}")
        return
    fused = wrapper_for(consumer)(forward)
    if fused is not forward:
        _rebind(consumer.function, forward, fused)


def _rebind(name: str, old: object, new: object) -> None:
    """Every module attribute of that name that is that object; aliases and default arguments are out of reach."""
    for module in list(sys.modules.values()):
        if namespace(module).get(name) is old:
            setattr(module, name, new)


def uninstall() -> None:
    """Undo `install` and `install_direct`: the original forwards are back, by identity, in every module.

    MindSpeed's own `remove_patches` skips modules named mindspeed*, so this does not rely on it. A decorator that
    somebody put above ours without MindSpeed's manager keeps ours beneath it; a warning says so.
    """
    for consumer in CONSUMERS:
        stop_watching(consumer.module)
        _remove_from_manager(consumer)
        module = sys.modules.get(consumer.module)
        current = namespace(module).get(consumer.function)
        if consumer_of(current) != consumer.id:
            continue
        if not is_fused_forward(current):
            log.once(consumer, "another decorator was put around the fused forward; it cannot be taken out")
            continue
        _rebind(consumer.function, current, current.__wrapped__)
    while _undo:
        _undo.pop()()
    log.forget()


def _remove_from_manager(consumer: Consumer) -> None:
    patching = sys.modules.get("mindspeed.patch_utils")
    entries = patching.MindSpeedPatchesManager.patches_info if patching else {}
    patch = entries.get(consumer.target)
    if patch is not None and wrapper_for(consumer) in patch.wrappers:
        patch.wrappers.remove(wrapper_for(consumer))
        if patch.wrappers or patch.patch_func is not None:  # others patched it too: compose theirs without ours
            patch.is_applied = False
            patch.apply_patch()
        else:
            del entries[consumer.target]
