"""Fills a case's inputs with data, as ATK does on every node: seeded by the case's id, uniform in `range_values`.

`promoted` is ATK's high-precision run: 16-bit floats keep their values but arrive as fp32.
"""
from __future__ import annotations

import torch

from .configs import CaseConfig, InputCaseConfig, InputDataset

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def _tensor(entry: InputCaseConfig) -> torch.Tensor:
    low, high = (entry.range_values * 2)[:2]
    return torch.empty(entry.shape).uniform_(low, high).to(TORCH_DTYPES[entry.dtype])


def fill(case: CaseConfig, promoted: bool = False) -> InputDataset:
    torch.manual_seed(case.id)
    data = InputDataset()
    for entry in case.inputs:
        value = _tensor(entry) if entry.type == "tensor" else entry.range_values
        if promoted and isinstance(value, torch.Tensor):
            value = value.float()
        data.kwargs[entry.name] = value
    return data
