"""One consumer of a real checkout, by one install route, in this process; prints what happened as JSON.

    python -m ut.integration.real_tree CONSUMER ROUTE ORDER [packed] [arch35]

Run by test_real_trees.py in a process of its own, since it stubs torch_npu, gives Triton a driver that launches
nothing, and puts the torch operators of reference_ops.py in place of the kernels. The forwards, their autograd
functions and MindSpeed's manager are the real ones. ROUTE: flag, flag-off, plugin or direct; ORDER: installed-first
or imported-first.
"""
from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import json
import os
import sys
import types
from collections import Counter

import torch

from ut.integration import reference_ops as ref

TREES = {"mindspeed": "MINDSPEED_SRC", "mindspeed_llm": "MINDSPEED_LLM_SRC", "mindspeed_mm": "MINDSPEED_MM_SRC"}
MS, MM = "mindspeed.ops.triton", "mindspeed_mm.fsdp.ops.gdn.triton"
KERNELS = {  # consumer → (module, name, torch operator) of everything that it would launch
    "ms": [(f"{MS}.cumsum", ref.chunk_local_cumsum), (f"{MS}.chunk_scaled_dot_kkt", ref.chunk_scaled_dot_kkt_fwd),
           (f"{MS}.solve_tril", ref.solve_tril), (f"{MS}.l2norm", ref.l2norm_fwd),
           (f"{MS}.wy_fast", ref.recompute_w_u_fwd), (f"{MS}.chunk_delta_h", ref.chunk_gated_delta_rule_fwd_h),
           (f"{MS}.chunk_o", ref.chunk_fwd_o)],
    "mm": [(f"{MM}.cumsum", ref.chunk_local_cumsum), (f"{MM}.chunk_scaled_dot_kkt", ref.chunk_scaled_dot_kkt_fwd),
           (f"{MM}.solve_tril", ref.solve_tril), (f"{MM}.wy_fast", ref.recompute_w_u_fwd),
           (f"{MM}.chunk_delta_h", ref.chunk_gated_delta_rule_fwd_h), (f"{MM}.chunk_o", ref.chunk_fwd_o),
           (f"{MM}_core.chunk_scaled_dot_kkt", ref.chunk_scaled_dot_kkt_fwd_head_first),
           (f"{MM}_core.solve_tril", ref.solve_tril), (f"{MM}_core.l2norm", ref.l2norm_fwd)],
}
calls: Counter[str] = Counter()


def stub_accelerator() -> None:
    """torch_npu and fla_npu as empty modules, torch.npu as a namespace, a Triton driver without a device."""
    for name in ("torch_npu", "fla_npu"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    torch.npu = types.SimpleNamespace(config=types.SimpleNamespace(), Stream=torch.Stream, is_available=lambda: False,
                                      current_device=lambda: 0)
    torch.ops.npu = ref.npu_ops

    silent_triton()


def silent_triton() -> None:
    class Driver:  # MindSpeed-MM asks for core counts while it is imported
        utils = types.SimpleNamespace(get_device_properties=lambda _: {"num_aicore": 24, "num_vectorcore": 48})

        def get_benchmarker(self):
            return lambda *_, **__: [0.0]

        def get_current_target(self):
            return types.SimpleNamespace(backend="cpu", arch="none", warp_size=0)

    import triton

    triton.runtime.driver.set_active(Driver())


def skip_unrelated_package() -> None:
    """mindspeed_mm.fsdp.ops without its own code, which is about attention and needs einops and torchair."""
    package = types.ModuleType("mindspeed_mm.fsdp.ops")
    package.__path__ = [os.path.join(os.environ[TREES["mindspeed_mm"]], "mindspeed_mm", "fsdp", "ops")]
    package.apply_ops_patch = lambda: None
    sys.modules[package.__name__] = package


def _counted(name, function):
    def call(*args, **kwargs):
        calls[name] += 1
        return function(*args, **kwargs)

    call.__name__ = function.__name__
    return call


def replace_kernels(family: str) -> None:
    for module, function in KERNELS[family]:
        name = function.__name__.removesuffix("_head_first")
        setattr(importlib.import_module(module), name, _counted(name, function))
    for utils in (f"{MS}.utils", f"{MM}.utils", f"{MM}_core.utils"):
        if utils in sys.modules:  # torch.cpu has no device context for input_guard to enter
            sys.modules[utils].custom_device_ctx = lambda index: contextlib.nullcontext()


def inputs(consumer: str, packed: bool):
    generator = torch.Generator().manual_seed(5)
    B, T, H, K, V = (1 if packed else 2), 150, 2, 32, 16
    q, k = (torch.randn(B, T, H, K, generator=generator) for _ in range(2))
    v = torch.randn(B, T, H, V, generator=generator)
    q, k = (ref.l2norm_fwd(x)[0] for x in (q, k))
    g = -0.2 * torch.rand(B, T, H, generator=generator)
    beta = torch.rand(B, T, H, generator=generator)
    q, k, v, beta = (x.to(torch.bfloat16) for x in (q, k, v, beta))
    offsets = torch.tensor([0, 70, 71, 150]) if packed else None
    return q, k, v, g, beta, offsets


def run_layer(module, consumer: str, packed: bool) -> dict[str, torch.Tensor]:
    """The module's public entry; o, the final state, and A as the autograd function saved it for backward."""
    q, k, v, g, beta, offsets = inputs(consumer, packed)
    if consumer == "M3":
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    entry = {"L1": "chunk_gated_delta_rule", "L2": "flash_gated_delta_rule", "M1": "chunk_gated_delta_rule",
             "M2": "chunk_gated_delta_rule", "M3": "flash_gated_delta_rule"}[consumer]
    q.requires_grad_()
    calls.clear()
    o, state = getattr(module, entry)(q, k, v, g=g, beta=beta, output_final_state=True, cu_seqlens=offsets)
    saved = [x for x in o.grad_fn.saved_tensors if x is not None and x.dim() == 4 and x.shape[-1] == 64]
    assert len(saved) == 1, [x.shape for x in saved]
    return {"o": o.detach(), "state": state, "A": saved[0].clone()}


def attributes() -> dict[tuple[str, str], int]:
    """Identity of every attribute of every loaded module (held alive by the modules themselves)."""
    return {(module_name, name): id(value) for module_name, module in list(sys.modules.items())
            if isinstance(module, types.ModuleType) for name, value in list(vars(module).items())}


def changed(before, after) -> list[str]:
    noise = ("__warningregistry__", "_last_exec", "TracebackException")
    return sorted(".".join(key) for key in before.keys() & after.keys()
                  if before[key] != after[key] and key[1] not in noise)


def install_by(route: str, consumer: str) -> None:
    import mindspeed_kkt_plugin.integration as integration

    if route.startswith("flag"):  # the real list, parser and manager; of the features only ours is applied
        from mindspeed.args_utils import get_mindspeed_args
        from mindspeed.features_manager.features_manager import MindSpeedFeaturesManager
        from mindspeed.patch_utils import MindSpeedPatchesManager

        assert integration.install()
        args = get_mindspeed_args()
        feature = MindSpeedFeaturesManager.FEATURES_LIST[-1]
        if feature.is_need_apply(args):
            feature.register_patches(MindSpeedPatchesManager, args)
        MindSpeedPatchesManager.apply_patches()
    elif route == "plugin":  # as MindSpeed-MM's trainer does with training.plugin
        from mindspeed_mm.fsdp.utils.register import import_plugin

        import_plugin(["mindspeed_kkt_plugin.integration.fsdp2"])
    else:  # what the launcher does for FSDP2 back ends
        integration.install_direct()


def main(consumer: str, route: str, order: str, packed: bool = False, arch35: bool = False) -> dict:
    stub_accelerator()
    import mindspeed_kkt_plugin.integration as integration
    from mindspeed_kkt_plugin.integration.consumers import CONSUMERS

    sys.argv = ["train.py", "--use-triton-gdn", *["--use-fused-gdn-kkt-solve"][: route != "flag-off"]]
    if arch35:  # MindSpeed-MM then takes another solve_tril, and gives it a dict of chunk tables
        sys.modules["torch_npu"].npu = types.SimpleNamespace(get_device_name=lambda: "Ascend950")
    package = "mindspeed_llm" if consumer.startswith("L") else "mindspeed_mm"
    sys.path[:0] = [os.environ[TREES["mindspeed"]], os.environ[TREES[package]]]
    if package == "mindspeed_mm":
        skip_unrelated_package()
    replace_kernels("ms" if package == "mindspeed_llm" else "mm")
    row = next(c for c in CONSUMERS if c.id == consumer)
    importlib.import_module(row.package)
    if order == "installed-first":
        install_by(route, consumer)
        module = importlib.import_module(row.module)
    else:
        module = importlib.import_module(row.module)
        plain = run_layer(module, consumer, packed)
        if route.startswith("flag"):
            importlib.import_module("mindspeed_kkt_plugin.integration.feature")  # loads MindSpeed's features
        before = attributes()
        install_by(route, consumer)
    after = attributes()
    fused = run_layer(module, consumer, packed)
    fused_calls = dict(calls)
    state = {c["id"]: c["state"] for c in integration.status()["consumers"]}[consumer]
    operator_calls = integration.status()["calls"]
    integration.uninstall()
    again = run_layer(module, consumer, packed)
    plain = again if order == "installed-first" else plain
    q, k, v, g, beta, offsets = inputs(consumer, packed)
    truth = ref.recurrent(q, k, v, g, beta, k.shape[-1] ** -0.5, offsets)
    return {
        "state": state,
        "o_error": float((fused["o"].float() - truth).norm() / truth.norm()),
        "operator_calls": operator_calls,
        "original_pair_calls_while_fused": fused_calls.get("solve_tril", 0)
        + fused_calls.get("chunk_scaled_dot_kkt_fwd", 0),
        "original_pair_calls_after_undo": calls["solve_tril"] + calls["chunk_scaled_dot_kkt_fwd"],
        "bit_equal": {name: bool(torch.equal(plain[name], fused[name]) and torch.equal(plain[name], again[name]))
                      for name in plain},
        "A_shape": list(fused["A"].shape),
        "A_dtype": str(fused["A"].dtype),
        "changed_by_install": None if order == "installed-first" else changed(before, after),
        "changed_after_undo": None if order == "installed-first" else changed(before, attributes()),
    }


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(*sys.argv[1:4], **dict.fromkeys(sys.argv[4:], True))))
