"""Which path a call takes, what `status()` says about it, and that importing needs nothing but torch."""
from __future__ import annotations

import logging
import subprocess
import sys
import textwrap

import pytest
import torch

import mindspeed_kkt_plugin
from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin import paths, status
from ut.accuracy import assert_accurate, exact
from ut.inputs import REGIMES, make_inputs

DTYPES = [pytest.param(torch.float32, id="fp32"), pytest.param(torch.bfloat16, id="bf16"),
          pytest.param(torch.float16, id="fp16")]


@pytest.fixture
def inputs(device):
    return make_inputs("cosine_50", T=40, H=1, HV=2, K=16, chunk_size=16, cu_seqlens=[0, 20, 20, 37], device=device)


@pytest.fixture
def fresh(monkeypatch):
    """Records of earlier tests put aside."""
    for name, kind in (("_broken", dict), ("_calls", paths.Counter), ("_fallbacks", paths.Counter), ("_last", dict)):
        monkeypatch.setattr(paths, name, kind())


def without(monkeypatch, *names):
    """Make paths refuse, as where their package is missing."""
    load = paths._load

    def refuse(module):
        gone = any(module.endswith(name) for name in names)
        return (None, "taken away by the test") if gone else load(module)

    monkeypatch.setattr(paths, "_load", refuse)


@pytest.mark.parametrize("path", ["two_call", "torch"])  # the fused one: test_op_accuracy.py
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regime", REGIMES)
def test_fallbacks_are_as_accurate_as_the_fused_path(path, dtype, regime, device, monkeypatch):
    monkeypatch.setenv("MINDSPEED_KKT_PATH", path)
    inputs = make_inputs(regime, T=100, H=1, K=64, dtype=dtype, device=device, seed=5)
    assert_accurate(fused(*inputs.args), exact(inputs), inputs, regime)
    assert status()["last"] == {"path": path, "why": f"MINDSPEED_KKT_PATH={path}"}


@pytest.mark.parametrize("path", ["two_call", "torch"])
@pytest.mark.parametrize("head_first", [False, True], ids=["token_first", "head_first"])
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
def test_fallbacks_take_every_layout_and_packing(path, head_first, chunk_size, device, monkeypatch):
    monkeypatch.setenv("MINDSPEED_KKT_PATH", path)
    inputs = make_inputs("random", T=90, H=1, HV=2, K=16, chunk_size=chunk_size, cu_seqlens=[0, 0, 33, 80],
                         device=device)
    k, g, beta = (x.transpose(1, 2).contiguous() if head_first else x for x in (inputs.k, inputs.g, inputs.beta))
    out = fused(k, g, beta, inputs.cu_seqlens, chunk_size, head_first=head_first, output_head_first=head_first)
    assert out.is_contiguous()
    assert_accurate(out.transpose(1, 2) if head_first else out, exact(inputs), inputs)


def test_first_choice_of_the_device(inputs, device, fresh):
    fused(*inputs.args)
    first = {"npu": "ascend"}.get(device, "portable")
    assert status()["last"] == {"path": first, "why": "first for this device"}
    assert status()["calls"] == {first: 1} and status()["fallbacks"] == {}


@pytest.mark.parametrize("missing,expected", [(("portable", "ascend"), "two_call"),
                                              (("portable", "ascend", "unfused"), "torch")])
def test_next_path_when_one_is_missing(missing, expected, inputs, fresh, monkeypatch, caplog):
    without(monkeypatch, *missing)
    with caplog.at_level(logging.WARNING, logger="mindspeed_kkt_plugin"):
        first, second = fused(*inputs.args), fused(*inputs.args)
    assert torch.equal(first, second)
    assert_accurate(first, exact(inputs), inputs)
    report = status()
    assert report["last"]["path"] == expected and "taken away by the test" in report["last"]["why"]
    assert list(report["fallbacks"].values()) == [2]
    assert len(caplog.records) == 1, "a fallback is logged once per reason"
    assert expected in caplog.text and "taken away by the test" in caplog.text


def test_a_kernel_that_does_not_compile_is_tried_once_per_kind_of_call(inputs, fresh, monkeypatch, caplog):
    from triton.errors import TritonError

    portable = paths._load("mindspeed_kkt_plugin.kernels.portable")[0]
    tried = []

    def plan(*args, **options):
        tried.append(args)
        raise TritonError("tile does not fit")

    monkeypatch.setattr(portable, "plan", plan)
    monkeypatch.setattr(paths, "PATHS", [path for path in paths.PATHS if path.name != "ascend"])
    for _ in range(3):
        assert_accurate(fused(*inputs.args), exact(inputs), inputs)
    assert len(tried) == 1 and status()["last"]["path"] == "two_call"
    assert "tile does not fit" in status()["last"]["why"]
    fused(inputs.k.bfloat16(), *inputs.args[1:])
    assert len(tried) == 2


def test_other_errors_of_a_path_are_not_swallowed(inputs, fresh, monkeypatch):
    portable = paths._load("mindspeed_kkt_plugin.kernels.portable")[0]

    def plan(*args, **options):
        raise ZeroDivisionError("a fault of the program")

    monkeypatch.setattr(portable, "plan", plan)
    monkeypatch.setattr(paths, "PATHS", [path for path in paths.PATHS if path.name != "ascend"])
    with pytest.raises(ZeroDivisionError):
        fused(*inputs.args)


def test_a_refusing_kernel_gives_its_reason(inputs, fresh, monkeypatch):
    monkeypatch.setattr(paths._load("mindspeed_kkt_plugin.kernels.portable")[0], "refuse", lambda *a, **o: "too odd")
    monkeypatch.setattr(paths, "PATHS", [path for path in paths.PATHS if path.name != "ascend"])
    fused(*inputs.args)
    assert status()["last"] == {"path": "two_call", "why": "portable: too odd"}


def test_a_driver_that_cannot_count_cores_is_a_reason_not_a_crash(inputs, fresh, monkeypatch):
    def count(device):
        raise RuntimeError("0 active drivers")

    monkeypatch.setattr(paths, "num_cores", count)
    assert_accurate(fused(*inputs.args), exact(inputs), inputs)
    assert status()["last"]["path"] == "torch" and "0 active drivers" in status()["last"]["why"]


def test_forcing_a_path_that_cannot_run_is_an_error(inputs, device, monkeypatch):
    monkeypatch.setenv("MINDSPEED_KKT_PATH", "portable" if device == "npu" else "ascend")
    with pytest.raises(RuntimeError, match="cannot take this call: .*" + device):
        fused(*inputs.args)
    monkeypatch.setenv("MINDSPEED_KKT_PATH", "quick")
    with pytest.raises(ValueError, match="quick.*portable"):
        fused(*inputs.args)


def test_status_names_versions_devices_and_every_path(device):
    report = status()
    assert report["versions"]["mindspeed-kkt-plugin"] == mindspeed_kkt_plugin.__version__
    assert report["versions"]["torch"] == torch.__version__ or torch.__version__.startswith(report["versions"]["torch"])
    assert set(report["devices"]) == {"cpu", "cuda", "npu"}
    assert set(report["paths"]) == {"ascend", "portable", "two_call", "torch"}
    assert report["paths"]["torch"] is None
    assert report["paths"]["ascend" if device == "npu" else "portable"] is None
    if device == "cpu":
        assert report["paths"]["ascend"]


def in_a_fresh_process(code, **environment):
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True,
                         env={"PATH": "", "PYTHONPATH": ":".join(sys.path), **environment}, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


HIDE = """
    import sys
    class Hide:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {"numpy", "triton", "torch_npu", "mindspeed"}:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Hide())
"""


def test_import_and_call_with_only_torch_installed():
    out = in_a_fresh_process(HIDE + """
    import torch, mindspeed_kkt_plugin as plugin
    assert callable(plugin.install)
    out = plugin.chunk_gated_delta_rule_fwd_kkt_solve(torch.ones(1, 20, 1, 4), chunk_size=16)
    assert out[0, 1, 0, 0] == -4 and out[0, 1, 0, 1] == 1
    print(plugin.status()["last"]["path"], plugin.status()["paths"]["portable"])
    """)
    assert out.startswith("torch cannot be imported: No module named 'triton'")


def test_import_touches_neither_triton_nor_a_device():
    in_a_fresh_process("""
    import sys, torch, mindspeed_kkt_plugin
    loaded = {"triton", "torch_npu", "mindspeed"} & set(sys.modules)
    assert not loaded, loaded
    assert not torch.cuda.is_initialized()
    """)


def test_without_the_interpreter_the_cpu_uses_torch_and_says_so():
    out = in_a_fresh_process("""
    import torch, mindspeed_kkt_plugin as plugin
    plugin.chunk_gated_delta_rule_fwd_kkt_solve(torch.ones(1, 20, 1, 4), chunk_size=16)
    print(plugin.status()["last"])
    """)
    assert "'torch'" in out and ("TRITON_INTERPRET" in out or "triton" in out)
