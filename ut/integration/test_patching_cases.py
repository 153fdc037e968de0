"""The public pitfalls of run-time patching, by their ids: order, names, identity, lazy modules, undoing, switches."""
from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import inspect
import sys
import types
from dataclasses import replace

import pytest

from mindspeed_kkt_plugin import integration
from mindspeed_kkt_plugin.integration import pairing
from mindspeed_kkt_plugin.integration.consumers import CONSUMERS
from mindspeed_kkt_plugin.integration.forward import consumer_of, wrapper_for
from ut.integration.conftest import ROW, STANDIN

L1 = ROW["L1"]


def _register(stack, **switches):
    """What MindSpeed does with our feature: ask, register, apply."""
    args = argparse.Namespace(optimization_level=2, **switches)
    integration.install()
    ours = next(f for f in stack.features.FEATURES_LIST if f.feature_name == "use_fused_gdn_kkt_solve")
    if ours.is_need_apply(args):
        ours.register_patches(stack.manager, args)
    ours.validate_args(args)
    stack.manager.apply_patches()
    return ours


def _on(stack, **switches):
    return _register(stack, use_fused_gdn_kkt_solve=True, use_triton_gdn=True, mamba_chunk_size=64, **switches)


@pytest.fixture(params=["through-the-manager", "direct"])
def install(request, stack):
    """Both ways of putting the decorator on a loaded consumer."""
    return (lambda: _on(stack)) if request.param == "through-the-manager" else integration.install_direct


def test_P01_which_cached_references_are_patched(stack, install):
    """Names imported before or after are; a default argument, an alias and an instance attribute are not."""
    stack.load("L1")
    use = f"from {L1.module} import {L1.function}"
    before = stack.module("c", use)
    bound = stack.module("e", use + " as alias\ndef call(forward=alias): return forward\nclass Layer:\n"
                                    "    def __init__(self): self.forward = alias")
    layer = bound.Layer()
    install()
    install()
    after = stack.module("d", use)
    assert consumer_of(before.chunk_gated_delta_rule_fwd) == consumer_of(after.chunk_gated_delta_rule_fwd) == "L1"
    assert not any(map(consumer_of, (bound.alias, bound.call(), layer.forward)))


def test_P01_layers_that_cached_the_public_entry_are_fused(stack, install, operator, layer_inputs):
    """Every consumer looks its forward up as a global, so references to its callers do not matter."""
    entry = stack.load("L1").chunk_gated_delta_rule
    install()
    entry(**layer_inputs("L1"))
    assert len(operator) == 1


def test_P03_what_is_registered_is_a_decorator_by_name_and_by_deed(stack, operator, layer_inputs):
    """It always runs the original's code; nothing is registered under a name that would be misread."""
    module = stack.load("L1")
    plain = module.chunk_gated_delta_rule_fwd
    _on(stack)
    patch = stack.manager.patches_info[L1.target]
    assert patch.patch_func is None and [w.__name__ for w in patch.wrappers] == ["gdn_kkt_solve_wrapper"]
    fused = module.chunk_gated_delta_rule_fwd
    assert not fused.__name__.endswith(("wrapper", "decorator")) and fused.__wrapped__ is plain
    codes = []
    sys.setprofile(lambda frame, event, _: codes.append(frame.f_code))
    try:
        fused(**layer_inputs("L1"))
    finally:
        sys.setprofile(None)
    assert plain.__code__ in codes


def test_P03_decorators_are_the_same_object_each_time_so_registering_again_adds_nothing(stack):
    stack.load("L1")
    ours = _on(stack)
    args = argparse.Namespace(use_triton_gdn=True)
    ours.register_patches(stack.manager, args)
    stack.manager.apply_patches()
    assert len(stack.manager.patches_info[L1.target].wrappers) == 1
    assert consumer_of(stack.forward_of("L1")) == "L1" and not consumer_of(stack.forward_of("L1").__wrapped__)


def test_P04_a_second_replacement_raises_and_a_forced_one_wins_over_the_first(stack):
    stack.load("L1")

    def first(*args): ...

    def second(*args): ...

    stack.manager.register_patch(L1.target, first)
    with pytest.raises(RuntimeError, match="exist"):
        stack.manager.register_patch(L1.target, second)
    stack.manager.register_patch(L1.target, second, force_patch=True)
    stack.manager.apply_patches()
    assert stack.forward_of("L1") is second


def test_P04_somebody_elses_replacement_without_the_pair_is_left_alone_and_reported(stack, caplog):
    stack.load("L1")

    def their_forward(**_): ...

    stack.manager.register_patch(L1.target, their_forward, force_patch=True)
    _on(stack)
    assert stack.forward_of("L1") is their_forward
    assert stack.state("L1") == "left alone" and "not patched" in caplog.text and "L1" in caplog.text


def test_P04_somebody_elses_replacement_with_the_pair_is_fused(stack, operator, layer_inputs):
    theirs = stack.module("theirs", inspect.getsource(stack.load("L1"))).chunk_gated_delta_rule_fwd
    stack.manager.register_patch(L1.target, theirs)
    _on(stack)
    stack.forward_of("L1")(**layer_inputs("L1"))
    assert stack.forward_of("L1").__wrapped__ is theirs and len(operator) == 1


def test_P04_being_overridden_later_is_detected(stack, install):
    module = stack.load("L1")
    install()
    assert stack.state("L1") == "active"
    module.chunk_gated_delta_rule_fwd = their_forward = lambda **_: None
    assert stack.state("L1") == "overridden" and their_forward.__qualname__ in stack.detail("L1")


def test_P06_managers_undo_skips_mindspeed_modules_and_ours_does_not(stack):
    plain = stack.load("L1").chunk_gated_delta_rule_fwd
    importer = types.ModuleType("mindspeed_x.m")
    importer.chunk_gated_delta_rule_fwd = plain
    stack.monkeypatch.setitem(sys.modules, "mindspeed_x.m", importer)
    _on(stack)
    stack.manager.remove_patches()
    assert consumer_of(importer.chunk_gated_delta_rule_fwd) == "L1", "known limit of remove_patches"
    integration.uninstall()
    assert importer.chunk_gated_delta_rule_fwd is plain and stack.forward_of("L1") is plain


def test_P06_undo_keeps_the_patches_of_others(stack):
    plain = stack.load("L1").chunk_gated_delta_rule_fwd

    def their_wrapper(forward):
        return lambda **kwargs: (forward, kwargs)

    _on(stack)
    stack.manager.register_patch(L1.target, their_wrapper)
    stack.manager.apply_patches()
    integration.uninstall()
    assert stack.forward_of("L1")(x=1) == (plain, {"x": 1})
    assert stack.manager.patches_info[L1.target].wrappers == [their_wrapper]


def test_P06_undo_leaves_nothing_of_ours_in_the_manager(stack):
    stack.load("L1")
    _on(stack)
    integration.uninstall()
    assert not stack.manager.patches_info and not stack.features.FEATURES_LIST[-1].feature_name.startswith("use_fused")


def test_P06_a_foreign_decorator_above_ours_keeps_ours_and_says_so(stack, caplog):
    module = stack.load("L1")
    integration.install_direct()
    fused = module.chunk_gated_delta_rule_fwd

    @functools.wraps(fused)
    def theirs(*args, **kwargs):
        return fused(*args, **kwargs)

    module.chunk_gated_delta_rule_fwd = theirs
    integration.uninstall()
    assert module.chunk_gated_delta_rule_fwd is theirs and "cannot be taken out" in caplog.text


@pytest.mark.parametrize("layouts", ["old", "new", "both"])
def test_P07_the_operators_old_and_new_paths_both_work(layouts, stack, install, operator, layer_inputs):
    """A consumer's own names are used, wherever it imported them from."""
    lite = "mindspeed.lite.ops.triton"
    for name in ("mindspeed.lite", "mindspeed.lite.ops", lite):
        stack.monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for leaf in ("chunk_scaled_dot_kkt", "solve_tril"):
        source = importlib.import_module(f"mindspeed.ops.triton.{leaf}")
        stack.monkeypatch.setitem(sys.modules, f"{lite}.{leaf}", source)
        if layouts == "old":
            stack.monkeypatch.delitem(sys.modules, f"mindspeed.ops.triton.{leaf}")
    source = STANDIN.joinpath(*L1.module.split(".")).with_suffix(".py").read_text()
    if layouts != "new":
        source = source.replace("mindspeed.ops.triton", lite)
    moved = stack.module("moved", source)
    stack.monkeypatch.setenv("TRAINING_BACKEND", "mindspeed_fsdp")
    importlib.import_module("mindspeed_llm.tasks.models.transformer")
    stack.monkeypatch.setitem(sys.modules, L1.module, moved)
    install()
    moved.chunk_gated_delta_rule_fwd(**layer_inputs("L1"))
    assert stack.state("L1") == "active" and len(operator) == 1


def test_P07_a_consumer_whose_operators_are_gone_is_reported_not_crashed(stack, caplog):
    stack.load("L2")
    stack.monkeypatch.setitem(sys.modules, "mindspeed.ops.triton.solve_tril", None)
    stack.monkeypatch.delitem(sys.modules, L1.module, raising=False)
    _on(stack)
    assert stack.state("L1") == "left alone" and "cannot be imported" in caplog.text
    assert stack.state("L2") == "active"


def test_P07_missing_or_renamed_forward_is_reported_and_no_None_is_planted(stack, install, caplog):
    module = stack.load("L1")
    module.renamed = module.__dict__.pop("chunk_gated_delta_rule_fwd")
    install()
    assert not hasattr(module, "chunk_gated_delta_rule_fwd")
    assert "has no chunk_gated_delta_rule_fwd" in caplog.text and stack.state("L1") == "left alone"


def test_P07_without_mindspeed_there_is_a_clear_warning(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "mindspeed", None)
    assert integration.install() is False
    assert "MindSpeed cannot be imported" in caplog.text


def test_P09_registering_before_the_consumer_exists_patches_it_at_import(stack, operator, layer_inputs):
    _on(stack)
    assert L1.module not in sys.modules and stack.state("L1") == "waiting"
    stack.load("L1").chunk_gated_delta_rule(**layer_inputs("L1"))
    assert stack.state("L1") == "active" and len(operator) == 1


def test_P09_installing_inside_the_consumers_import_gives_no_half_patched_module(stack, caplog):
    source = STANDIN.joinpath(*L1.module.split(".")).with_suffix(".py").read_text()
    consumer = replace(L1, id="X1", module="stage.early")
    stack.monkeypatch.setattr("mindspeed_kkt_plugin.integration.routes.CONSUMERS", (consumer,))
    install_first = "from mindspeed_kkt_plugin import integration\nintegration.install_direct()\n"
    early = stack.module("early", install_first + source)
    assert not consumer_of(early.chunk_gated_delta_rule_fwd) and "being imported at this moment" in caplog.text
    integration.install_direct()
    assert consumer_of(early.chunk_gated_delta_rule_fwd) == "X1"
    integration.uninstall()


def test_P09_consumers_imported_while_the_manager_applies_do_not_disturb_it(stack):
    """Registering in the manager from there would change the dictionary that it walks."""
    stack.monkeypatch.setenv("TRAINING_BACKEND", "mindspeed_fsdp")
    integration.install_direct()
    stack.write("target", f"import {ROW['M1'].module}\ndef helper(): pass\n")
    stack.manager.register_patch("stage.target.helper", lambda: "patched")
    stack.manager.apply_patches()
    assert stack.state("M1") == "active" and sys.modules["stage.target"].helper() == "patched"


class _Lazy(types.ModuleType):
    def __getattr__(self, name):
        self.__dict__["loaded"] = True
        raise AttributeError(name)


class _Broken(types.ModuleType):
    def __getattr__(self, name):
        raise OSError("this module's backend is missing")


def test_P10_direct_install_and_undo_wake_no_lazy_module(stack):
    odd = {"lazy": _Lazy("lazy"), "broken": _Broken("broken"), "none": None, "number": 3}
    for name, module in odd.items():
        stack.monkeypatch.setitem(sys.modules, name, module)
    stack.load("L1")
    integration.install_direct()
    integration.uninstall()
    assert "loaded" not in vars(odd["lazy"])


def test_P10_importlibs_lazy_module_is_not_loaded(stack):
    stack.write("heavy", "raise RuntimeError('must not run')")
    spec = importlib.util.find_spec("stage.heavy")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    stack.monkeypatch.setitem(sys.modules, "stage.heavy", module)
    spec.loader.exec_module(module)
    stack.load("L1")
    integration.install_direct()
    integration.uninstall()


def test_P10_the_manager_itself_survives_a_lazy_module_and_fails_clearly_on_a_broken_one(stack):
    """Its scan asks every module with hasattr; that is MindSpeed's behaviour, shared by all its features."""
    stack.load("L1")
    stack.monkeypatch.setitem(sys.modules, "lazy", _Lazy("lazy"))
    stack.monkeypatch.setitem(sys.modules, "none", None)
    _on(stack)
    assert stack.state("L1") == "active"
    integration.uninstall()
    stack.monkeypatch.setitem(sys.modules, "broken", _Broken("broken"))
    with pytest.raises(OSError, match="backend is missing"):
        _on(stack)


CLASS = """
class Layer:
    def method(self): return "plain"
    @classmethod
    def by_class(cls): return "plain"
    @staticmethod
    def static(): return "plain"
"""


@pytest.mark.parametrize("kind", ["method", "static", "by_class"])
def test_P12_what_the_manager_makes_of_members_of_a_class(kind, stack):
    """Right for methods. A replaced static or class method turns into a plain one: it is given the instance."""
    layer = stack.module("layers", CLASS).Layer()

    def their_replacement(*args):
        return len(args)

    stack.manager.register_patch(f"stage.layers.Layer.{kind}", their_replacement)
    stack.manager.apply_patches()
    assert getattr(layer, kind)() == 1  # the instance was passed


@pytest.mark.parametrize("kind", ["method", "static", "by_class"])
def test_P12_consumers_are_module_level_functions_only(kind, stack, caplog):
    layer = stack.module("layers", CLASS).Layer
    consumer = replace(L1, id="X1", module="stage.layers.Layer", function=kind)
    assert pairing.why_unpaired(getattr(layer, kind))
    before = vars(layer)[kind]
    assert wrapper_for(consumer)(getattr(layer, kind)) == getattr(layer, kind)
    assert vars(layer)[kind] is before and "not patched" in caplog.text


def test_P13_installing_twice_and_reloading_is_harmless(stack, install, operator, layer_inputs):
    module = stack.load("L1")
    install(), install()
    importlib.reload(importlib.import_module("mindspeed_kkt_plugin.integration.fsdp2"))
    features = [f for f in stack.features.FEATURES_LIST if f.feature_name == "use_fused_gdn_kkt_solve"]
    assert len(features) <= 1
    stack.forward_of("L1")(**layer_inputs("L1"))
    assert len(operator) == 1 and not consumer_of(module.chunk_gated_delta_rule_fwd.__wrapped__)


def test_P13_a_reloaded_consumer_is_fused_again(stack, operator, layer_inputs):
    module = stack.load("L1")
    integration.install_direct()
    importlib.reload(module)
    stack.forward_of("L1")(**layer_inputs("L1"))
    assert len(operator) == 1 and stack.state("L1") == "active"
    integration.uninstall()
    assert not consumer_of(stack.forward_of("L1"))


@pytest.mark.parametrize("missing", ["chunk_scaled_dot_kkt_fwd", "solve_tril"])
def test_P15_pair_is_fused_together_or_not_at_all(missing, stack, install, caplog):
    module = stack.load("L1")
    plain = module.chunk_gated_delta_rule_fwd
    stack.monkeypatch.setattr(module, missing, None)
    install()
    assert module.chunk_gated_delta_rule_fwd is plain and f"no callable {missing}" in caplog.text


def _identities():
    """Of every module but hypothesis, whose garbage-collection hook rebinds its own globals at any moment."""
    return {(name, key): id(value) for name, module in list(sys.modules.items())
            if isinstance(module, types.ModuleType) and name.split(".")[0] != "hypothesis"
            for key, value in list(vars(module).items())}


@pytest.mark.parametrize("switches", [
    pytest.param(dict(use_fused_gdn_kkt_solve=False, use_triton_gdn=True), id="flag-off"),
    pytest.param(dict(), id="args-without-the-flag"),
])
def test_P16_without_the_flag_no_module_attribute_changes(switches, stack):
    for consumer in CONSUMERS:
        stack.load(consumer.id)
    import mindspeed_kkt_plugin.integration.feature  # noqa: F401 (its import is not a patch)

    before = _identities()
    _register(stack, **switches)
    after = _identities()
    assert {key for key in before if after.get(key) != before[key]} == set()
    assert not stack.manager.patches_info


def test_P16_with_the_flag_exactly_the_consumers_forwards_change(stack):
    for consumer in CONSUMERS:
        stack.load(consumer.id)
    import mindspeed_kkt_plugin.integration.feature  # noqa: F401

    before = _identities()
    _on(stack)
    after = _identities()
    changed = {".".join(key) for key in before if after[key] != before[key]}
    assert changed == {consumer.target for consumer in CONSUMERS}
    integration.uninstall()
    final = _identities()
    assert {key for key in before if final[key] != before[key]} == set()


def test_P16_a_consumer_that_is_not_selected_is_not_imported_and_not_warned_about(stack, caplog):
    stack.monkeypatch.setenv("TRAINING_BACKEND", "mindspeed_fsdp")
    importlib.import_module("mindspeed_llm")
    ours = _register(stack)
    ours.register_patches(stack.manager, argparse.Namespace(use_triton_gdn=False))
    assert L1.module not in sys.modules and not caplog.records
    assert stack.state("L1") == "left alone" and "use_triton_gdn is off" in stack.detail("L1")


def test_P16_a_config_without_the_arguments_validates(stack):
    """Validation also runs on every TransformerConfig."""
    _register(stack).validate_args(types.SimpleNamespace())
