"""A MindSpeed stack that exists for one test: the stand-in, and with MINDSPEED_SRC the real manager as well.

The consumers are the stand-in's in both cases; the real ones run in test_real_trees.py.
"""
from __future__ import annotations

import importlib
import os
import sys
import types
from pathlib import Path

import pytest

from mindspeed_kkt_plugin import integration
from mindspeed_kkt_plugin.integration import forward, log
from mindspeed_kkt_plugin.integration.consumers import CONSUMERS
from mindspeed_kkt_plugin.integration.imports import _watcher
from ut.inputs import make_inputs
from ut.integration.reference_ops import chunk_scaled_dot_kkt_fwd, solve_tril

STANDIN = Path(__file__).parent / "standin"
ROW = {consumer.id: consumer for consumer in CONSUMERS}
_TEMPORARY = ("mindspeed", "torch_npu", "stage")  # top-level names that a test may load


class Stack:
    """What tests need of MindSpeed; imports happen when a test asks, since their order matters."""

    def __init__(self, monkeypatch, directory: Path):
        self.monkeypatch = monkeypatch
        self.directory = directory

    @property
    def manager(self):
        return importlib.import_module("mindspeed.patch_utils").MindSpeedPatchesManager

    @property
    def features(self):
        return importlib.import_module("mindspeed.features_manager.features_manager").MindSpeedFeaturesManager

    def command_line(self, *flags):
        self.monkeypatch.setattr(sys, "argv", ["train.py", *flags])

    def load(self, consumer: str):
        """The consumer's module without MindSpeed-LLM's adaptor, as in an FSDP2 training."""
        self.monkeypatch.setenv("TRAINING_BACKEND", "mindspeed_fsdp")
        return importlib.import_module(ROW[consumer].module)

    def forward_of(self, consumer: str):
        return getattr(sys.modules[ROW[consumer].module], ROW[consumer].function)

    def state(self, consumer: str) -> str:
        return next(row["state"] for row in integration.status()["consumers"] if row["id"] == consumer)

    def detail(self, consumer: str) -> str:
        return next(row["detail"] for row in integration.status()["consumers"] if row["id"] == consumer)

    def write(self, name: str, source: str) -> None:
        """Make a module `stage.<name>` with this source text, importable and inspectable."""
        root = self.directory / "stage"
        root.mkdir(exist_ok=True)
        (root / "__init__.py").touch()
        (root / f"{name}.py").write_text(source, encoding="utf-8")
        importlib.invalidate_caches()

    def module(self, name: str, source: str):
        self.write(name, source)
        return importlib.import_module(f"stage.{name}")


def _forget_modules():
    for name in [n for n in sys.modules if n.split(".")[0].startswith(_TEMPORARY)]:
        if not name.startswith("mindspeed_kkt_plugin"):
            del sys.modules[name]
    for name in ("feature", "fsdp2"):  # they belong to the MindSpeed that was there
        sys.modules.pop(f"mindspeed_kkt_plugin.integration.{name}", None)


# test_real_trees.py says so when the real manager is missing: one skip instead of one a test.
STACKS = ["standin", "real-manager"] if "MINDSPEED_SRC" in os.environ else ["standin"]


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch, tmp_path):
    paths = [str(STANDIN), str(tmp_path)]
    if request.param == "real-manager":
        paths.insert(0, os.environ["MINDSPEED_SRC"])
    monkeypatch.setattr(sys, "path", [*paths, *sys.path])
    monkeypatch.setattr(sys, "argv", ["train.py"])
    importlib.invalidate_caches()
    if request.param == "real-manager":
        monkeypatch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
        _operators_of_the_standin()
    yield Stack(monkeypatch, tmp_path)
    integration.uninstall()
    assert not _watcher.callbacks
    _forget_modules()


def _operators_of_the_standin():
    """The real mindspeed package, but its Triton operators (which need a device to import) replaced."""
    package = types.ModuleType("mindspeed.ops")
    package.__path__ = [str(STANDIN / "mindspeed" / "ops")]
    sys.modules["mindspeed.ops"] = importlib.import_module("mindspeed").ops = package


@pytest.fixture
def operator(monkeypatch):
    """Replaces the fused operator by the reference pair, and records the calls."""
    calls = []

    def fused(k, g, beta, cu_seqlens=None, chunk_size=64, output_dtype=None, chunk_indices=None, *, head_first=False,
              output_head_first=False):
        calls.append(dict(k=k, g=g, beta=beta, cu_seqlens=cu_seqlens, chunk_size=chunk_size, head_first=head_first,
                          output_dtype=output_dtype, output_head_first=output_head_first))
        if head_first:
            k, g, beta = (x.transpose(1, 2) for x in (k, g, beta))
        out = solve_tril(chunk_scaled_dot_kkt_fwd(k, g, None, beta, cu_seqlens, chunk_size), cu_seqlens,
                         output_dtype=output_dtype)
        calls[-1]["out"] = out = out.transpose(1, 2).contiguous() if output_head_first else out
        return out

    monkeypatch.setattr(forward, "operator", lambda: fused)
    return calls


@pytest.fixture
def layer_inputs():
    """k, g, beta for a consumer's forward; M3's k is head-first."""

    def make(consumer: str, **options):
        made = make_inputs("cosine_50", **{"B": 1, "T": 100, "H": 2, "K": 16, **options})
        k = made.k.transpose(1, 2).contiguous() if ROW[consumer].head_first_k else made.k
        return dict(k=k, g=made.g, beta=made.beta, cu_seqlens=made.cu_seqlens)

    return make


@pytest.fixture(autouse=True)
def fresh_log():
    log.forget()
