"""Runs one case on one node: builds the executor as ATK does, feeds it data, and times or collects the output."""
from __future__ import annotations

from .configs import CaseConfig, TaskResult
from .dataset import fill
from .names import EXECUTORS

BACKENDS = {"cpu": "cpu", "cuda": "gpu", "npu": "npu"}  # run_local's device → ATK's backend name
DUT, GOLD = "dut", "gold"


def executor(case: CaseConfig, backend: str, node: str, golden: bool = False, device_id: int = 0):
    """A prepared executor and its data; the golden's data is promoted as ATK does."""
    if case.api_type not in EXECUTORS:
        raise KeyError(f"executor {case.api_type!r} is not registered; known: {sorted(EXECUTORS)}")
    api = EXECUTORS[case.api_type](TaskResult(case, backend, node, device_id, golden))
    data = fill(case, promoted=golden)
    api.init_by_input_data(data)
    return api, data


def output(case: CaseConfig, backend: str, node: str, golden: bool = False, device_id: int = 0):
    api, data = executor(case, backend, node, golden, device_id)
    return api(data, with_output=True)
