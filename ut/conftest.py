"""Options and fixtures of the whole suite: which device, slow tests, and Triton's interpreter on the CPU.

Triton decides at import time whether kernels are interpreted, for the whole process. On the CPU this suite
interprets; a test that needs the real compiler front end starts a process of its own without TRITON_INTERPRET.
"""
from __future__ import annotations

import os
import sys

import pytest


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", choices=("cpu", "cuda", "npu"), help="where the operator runs")
    parser.addoption("--run-slow", action="store_true", help="run the tests marked slow as well")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes long; runs only with --run-slow")
    # Raised by Triton 3.2's interpreter for every loop bound that is a tensor.
    config.addinivalue_line("filterwarnings", "ignore:Conversion of an array with ndim > 0:DeprecationWarning")
    if config.getoption("--device") == "cpu":
        if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
            raise pytest.UsageError("triton was imported before the suite could switch its interpreter on")
        os.environ["TRITON_INTERPRET"] = "1"
        _patch_language_once()
    if config.getoption("--device") == "npu":
        import torch_npu  # noqa: F401  (registers torch.npu)


def _patch_language_once():
    """Triton 3.2's interpreter patches `triton.language` anew at every call of every helper: half the suite's time.

    There the patches are never undone, so one round is enough.
    """
    try:
        from triton.runtime import interpreter
    except ImportError:
        return  # without Triton the suite runs on the torch path
    if not sys.modules["triton"].__version__.startswith("3.2."):
        return  # later versions undo their patches after every launch
    patch, done = interpreter._patch_lang, set()

    def once(fn):
        languages = frozenset(name for name in ("triton.language", "triton.language.core")
                              if any(value is sys.modules[name] for value in fn.__globals__.values()))
        if languages not in done:
            patch(fn)
            done.add(languages)

    interpreter._patch_lang = once


def pytest_collection_modifyitems(config, items):
    if config.getoption("--run-slow"):
        return
    skip = pytest.mark.skip(reason="slow: pass --run-slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def device(request) -> str:
    return request.config.getoption("--device")
