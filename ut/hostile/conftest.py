"""Fixtures of the hostile cases: accelerators, and a fill that shows every element nobody wrote."""
from __future__ import annotations

import pytest
import torch


@pytest.fixture
def accelerator(device):
    if device == "cpu":
        pytest.skip("needs an accelerator: pass --device cuda or npu")
    return device


@pytest.fixture
def unwritten_is_nan():
    """torch's deterministic mode fills new tensors with NaN, so a row that no kernel writes is seen."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)
