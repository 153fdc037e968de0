"""The full start-up of a real stack on Megatron, in this process; prints what happened as JSON.

    python -m ut.integration.real_adaptor mindspeed|llm|mm before|after|off|yaml

Run by test_real_trees.py. Any torch_npu, torchair, acl, … module is fabricated; MindSpeed, MindSpeed-LLM,
MindSpeed-MM and Megatron-LM are the real sources, with all their features and their own patches.
"""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from unittest.mock import MagicMock

import torch

from ut.integration import real_tree

FABRICATED = ("torch_npu", "torchair", "acl", "fla_npu", "datasets", "peft", "accelerate",
              "mindspeed_mm.data", "mindspeed_mm.models")  # the last two: no part in Gated DeltaNet on Megatron


class _Fabricated(types.ModuleType):
    __path__: list[str] = []
    __file__ = "fabricated"
    __version__ = "0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class _Fabricator(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"{prefix}.") for prefix in FABRICATED):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Fabricated(spec.name)

    def exec_module(self, module):
        pass


def prepare(stack: str) -> None:
    sys.meta_path.insert(0, _Fabricator())
    torch.npu = MagicMock()
    torch.npu.Stream = torch.Stream
    torch.ops.npu = real_tree.ref.npu_ops
    real_tree.silent_triton()
    names = {"mindspeed": [], "llm": ["MINDSPEED_LLM_SRC"], "mm": ["MINDSPEED_MM_SRC"]}[stack]
    sys.path[:0] = [os.environ[name] for name in (*names, "MINDSPEED_SRC", "MEGATRON_SRC")]
    if stack == "llm":
        real_tree.replace_kernels("ms")


def start(stack: str) -> None:
    if stack == "llm":
        from mindspeed_llm import megatron_adaptor  # noqa: F401
    else:
        import mindspeed.megatron_adaptor  # noqa: F401
    if stack == "mm":
        import mindspeed_mm  # noqa: F401


def megatron_parses_the_flag() -> bool:
    """Megatron's own, strict parser, extended by every feature of the stack."""
    from megatron.training.arguments import parse_args

    return parse_args().use_fused_gdn_kkt_solve


def run_layers(stack: str, consumers: list[str]) -> dict:
    """Each consumer fused, fused again after MindSpeed-LLM's repatch, and undone, with torch operators for kernels."""
    from mindspeed_kkt_plugin import integration
    from mindspeed_kkt_plugin.integration.consumers import CONSUMERS

    modules = {c.id: importlib.import_module(c.module) for c in CONSUMERS if c.id in consumers}

    def run_all():
        found, solve_calls = {}, 0
        for consumer, module in modules.items():
            found[consumer] = real_tree.run_layer(module, consumer, False)
            solve_calls += real_tree.calls["solve_tril"]
        return found, solve_calls

    runs = [run_all()]
    if stack == "llm":
        importlib.import_module("mindspeed_llm.tasks.megatron_adaptor_v2").repatch({})
        runs.append(run_all())
    integration.uninstall()
    runs.append(run_all())
    first = runs[0][0]
    equal = all(torch.equal(first[consumer][name], value)
                for results, _ in runs[1:] for consumer, result in results.items() for name, value in result.items())
    return {"bit_equal": equal, "solve_calls_until_undone": [calls for _, calls in runs]}


def load_megatron_gdn_of_mm() -> None:
    real_tree.skip_unrelated_package()  # its FSDP part needs another torch
    real_tree.replace_kernels("mm")
    importlib.import_module("mindspeed_mm.mcore.models.qwen3_5.gated_delta_net")


def patch_by_yaml() -> None:
    """What mindspeed_mm.training.pretrain does once the configuration is read."""
    patches = importlib.import_module("mindspeed_mm.patchs.patch_manager")
    section = types.SimpleNamespace(to_dict=lambda: {"use_fused_gdn_kkt_solve": True})
    model = types.SimpleNamespace(patch=section)
    patches.get_args = lambda: types.SimpleNamespace(mm=types.SimpleNamespace(model=model))
    patches.PatchesManager.apply_patches_from_config()


def main(stack: str, order: str) -> dict:
    prepare(stack)
    flags = ["--use-fused-gdn-kkt-solve"] if order in ("before", "after") else []
    llm = ["--use-triton-gdn", "--mamba-chunk-size", "64"] if stack == "llm" else []
    sys.argv = ["train.py", *flags, *llm]
    from mindspeed_kkt_plugin import integration

    if order != "after":
        integration.install()
    start(stack)
    if order == "after":
        integration.install()
    found = {"flag": megatron_parses_the_flag()}
    if stack == "mm":
        load_megatron_gdn_of_mm()
        if order == "yaml":
            patch_by_yaml()
    from mindspeed.patch_utils import MindSpeedPatchesManager

    registered = MindSpeedPatchesManager.patches_info
    found |= {"targets": len(registered), "ours": [t for t in registered if "gated_delta_rule" in t]}
    found["states"] = {row["id"]: row["state"] for row in integration.status()["consumers"]}
    active = [consumer for consumer, state in found["states"].items() if state == "active"]
    return found | (run_layers(stack, active) if active else {})


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(*sys.argv[1:3])))
