"""Each way of installing, from the command line or YAML to the fused forward, with the lines that the user sees."""
from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mindspeed_kkt_plugin import integration, run
from mindspeed_kkt_plugin.integration.forward import consumer_of
from ut.integration.conftest import ROW, STANDIN

FLAG = "--use-fused-gdn-kkt-solve"
REPOSITORY = Path(__file__).parents[2]


def _adaptor_of_llm():
    return importlib.import_module("mindspeed_llm").megatron_adaptor


def _names(features):
    return [feature.feature_name for feature in features.FEATURES_LIST]


def test_llm_flag_before_the_adaptor(stack, operator, layer_inputs, capsys):
    """Survives MindSpeed-LLM's own list and its remove_patches at start-up."""
    stack.command_line(FLAG, "--use-triton-gdn", "--mamba-chunk-size", "64")
    integration.install()
    _adaptor_of_llm()
    stack.forward_of("L1")(**layer_inputs("L1"))
    assert len(operator) == 1 and _names(stack.features) == ["gdn", "use_fused_gdn_kkt_solve"]
    line = f"[mindspeed_kkt_plugin] fused kkt_solve active for: L1 {ROW['L1'].target}"
    assert capsys.readouterr().out.splitlines().count(line) == 1


def test_llm_flag_after_the_adaptor(stack, operator, layer_inputs):
    stack.command_line(FLAG, "--use-triton-gdn")
    _adaptor_of_llm()
    integration.install()
    stack.forward_of("L1")(**layer_inputs("L1"))
    assert len(operator) == 1


def test_llm_repatch_keeps_the_fused_forward_and_says_it_once(stack, operator, layer_inputs, capsys):
    stack.command_line(FLAG, "--use-triton-gdn")
    integration.install()
    _adaptor_of_llm().repatch({"seq_length": 4096})
    stack.forward_of("L1")(**layer_inputs("L1"))
    assert len(operator) == 1 and capsys.readouterr().out.count("active for: L1") == 1


def test_llm_without_the_flag_stays_plain(stack, capsys):
    stack.command_line("--use-triton-gdn")
    integration.install()
    _adaptor_of_llm()
    assert not consumer_of(stack.load("L1").chunk_gated_delta_rule_fwd)
    assert not stack.manager.patches_info and capsys.readouterr().out == ""


def test_llm_flag_without_triton_gdn_is_an_error_that_names_it(stack):
    stack.command_line(FLAG)
    integration.install()
    args = _adaptor_of_llm().FeatureAdaptor.get_mindspeed_llm_args()
    with pytest.raises(AssertionError, match="use_fused_gdn_kkt_solve requires use_triton_gdn"):
        stack.features.validate_features_args(args)


def test_llm_default_chunk_size_of_256_is_explained(stack):
    stack.command_line(FLAG, "--use-triton-gdn")
    integration.install()
    args = _adaptor_of_llm().FeatureAdaptor.get_mindspeed_llm_args()
    with pytest.raises(ValueError, match=r"--mamba-chunk-size is 256, allowed are \(16, 32, 64\).*default is 256"):
        stack.features.validate_features_args(args)


def test_flag_is_registered_on_every_parser_once(stack):
    """MindSpeed parses early with its own parser and later with Megatron's strict one."""
    integration.install()
    for _ in range(2):
        parser = argparse.ArgumentParser()
        feature = stack.features.FEATURES_LIST[-1]
        feature.register_args(parser), feature.register_args(parser)
        assert parser.parse_args([FLAG]).use_fused_gdn_kkt_solve is True
        assert parser.parse_args([]).use_fused_gdn_kkt_solve is False


def test_level_is_2_and_off_by_default(stack):
    integration.install()
    feature = stack.features.FEATURES_LIST[-1]
    assert feature.optimization_level == 2
    assert not feature.is_need_apply(argparse.Namespace(optimization_level=2))
    assert not feature.is_need_apply(argparse.Namespace(optimization_level=1, use_fused_gdn_kkt_solve=True))


@pytest.mark.parametrize("stack", ["standin"], indirect=True)
@pytest.mark.parametrize("order", ["before-the-adaptor", "after-the-adaptor"])
def test_mm_on_megatron_by_flag_patches_at_import(order, stack, operator, layer_inputs):
    """MindSpeed's adaptor runs before mindspeed_mm is loaded, so its consumers are fused when they appear."""
    stack.command_line(FLAG)
    steps = [integration.install, lambda: importlib.import_module("mindspeed.megatron_adaptor")]
    for step in steps if order == "before-the-adaptor" else reversed(steps):
        step()
    assert stack.state("M1") == stack.state("M3") == "waiting"
    for consumer in ("M1", "M3"):
        stack.load(consumer)
        stack.forward_of(consumer)(**layer_inputs(consumer))
    assert len(operator) == 2


def test_mm_on_megatron_by_yaml(stack, operator, layer_inputs):
    """model.patch.use_fused_gdn_kkt_solve: true, with MindSpeed-MM's own forced registration."""
    stack.command_line()
    integration.install()
    patches = importlib.import_module("mindspeed_mm.patchs.patch_manager").PatchesManager
    stack.load("M1"), stack.load("M3")
    patches.apply_patches_from_config({"use_fused_gdn_kkt_solve": True, "ae_float32": False})
    for consumer in ("M1", "M3"):
        stack.forward_of(consumer)(**layer_inputs(consumer))
    assert len(operator) == 2
    integration.uninstall()
    assert set(patches.configs) == {"ae_float32"} and not consumer_of(stack.forward_of("M1"))


def test_mm_fsdp2_plugin_module_installs_on_import(stack, operator, layer_inputs, capsys):
    importlib.import_module("mindspeed_kkt_plugin.integration.fsdp2")
    assert "installed; waits for the import of: L1, L2, M1, M2, M3" in capsys.readouterr().out
    for consumer in ("M1", "M2", "M3"):
        stack.load(consumer)
        stack.forward_of(consumer)(**layer_inputs(consumer))
    assert len(operator) == 3
    assert [f"active for: {c}" in capsys.readouterr().out for c in ("M1",)] == [True]


def test_only_rank_0_prints(stack, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    stack.load("L1")
    integration.install_direct()
    assert stack.state("L1") == "active" and capsys.readouterr().out == ""


SCRIPT = """
import os, sys
print("argv", sys.argv[1:], "path", sys.path[0] == os.path.dirname(os.path.abspath(__file__)), __name__)
if os.environ.get("TRAINING_BACKEND") is None:
    from mindspeed_llm import megatron_adaptor
import torch.distributed
from mindspeed_llm.tasks.models.transformer import chunk_gated_delta_rule as module
print("fused", module.chunk_gated_delta_rule_fwd.__dict__.get("__fused_kkt_solve__"))
"""


def _launch(tmp_path, *arguments):
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if k not in ("TRAINING_BACKEND", "NON_MEGATRON")}
    environment |= {"PYTHONPATH": os.pathsep.join([str(STANDIN), str(REPOSITORY)]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "mindspeed_kkt_plugin.run", str(tmp_path / "train.py"), *arguments],
        env=environment, cwd=tmp_path.parent, capture_output=True, text=True, timeout=120)


def test_launcher_on_megatron_leaves_the_decision_to_the_flag(tmp_path):
    """The FSDP2 case, under torchrun, is in test_two_ranks.py."""
    on = _launch(tmp_path, FLAG, "--use-triton-gdn")
    assert f"argv ['{FLAG}', '--use-triton-gdn'] path True __main__" in on.stdout and "fused L1" in on.stdout, on.stderr
    assert "active for: L1" in on.stdout
    off = _launch(tmp_path, "--use-triton-gdn")
    assert "fused None" in off.stdout and "mindspeed_kkt_plugin" not in off.stdout


@pytest.mark.parametrize(("variables", "megatron"), [
    ({}, True), ({"TRAINING_BACKEND": "mcore"}, True), ({"TRAINING_BACKEND": "mindspeed_fsdp"}, False),
    ({"NON_MEGATRON": "true"}, False), ({"NON_MEGATRON": "false"}, True),
], ids=str)
def test_launcher_tells_the_back_ends_apart_as_they_do_themselves(variables, megatron, monkeypatch):
    for name in ("TRAINING_BACKEND", "NON_MEGATRON"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run.on_megatron() is megatron


@pytest.mark.parametrize(("arguments", "text"), [
    pytest.param([], "usage:", id="nothing"),
    pytest.param(["absent.py"], "SCRIPT is 'absent.py'; it must be an existing Python file", id="no-such-file"),
])
def test_launcher_explains_a_missing_script(arguments, text, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    with pytest.raises(SystemExit, match=text):
        run.main()


def test_launcher_help_exits_0(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run", "--help"])
    with pytest.raises(SystemExit) as exit_:
        run.main()
    assert not exit_.value.code and "usage:" in capsys.readouterr().out
