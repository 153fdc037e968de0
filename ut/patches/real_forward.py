"""One edited forward of real checkouts, with and without the switch, in this process; prints the outcome as JSON.

    python -m ut.patches.real_forward CONSUMER [packed]

PYTHONPATH and the variables of ut/integration name the edited trees. Accelerator stubs and torch operators are those of
ut/integration/real_tree.py; the forward, its autograd function and the branch are the tree's.
"""
from __future__ import annotations

import importlib
import json
import sys

import torch

from mindspeed_kkt_plugin.integration.consumers import CONSUMERS
from ut.integration import real_tree


def main(consumer: str, packed: bool) -> dict:
    row = next(c for c in CONSUMERS if c.id == consumer)
    real_tree.stub_accelerator()
    if row.package == "mindspeed_mm":
        real_tree.skip_unrelated_package()
    real_tree.replace_kernels("ms" if row.package == "mindspeed_llm" else "mm")
    module = importlib.import_module(row.module)
    off = real_tree.run_layer(module, consumer, packed)
    calls_off = _pair()
    module.fused_kkt_solve_takes = lambda **given: True  # no NPU: the operator then takes its torch path
    on = real_tree.run_layer(module, consumer, packed)
    return {"calls_off": calls_off, "calls_on": _pair(),
            "equal": {name: bool(torch.equal(off[name], on[name])) for name in off}}


def _pair() -> list[int]:
    return [real_tree.calls[name] for name in ("chunk_scaled_dot_kkt_fwd", "solve_tril")]


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(sys.argv[1], sys.argv[2:] == ["packed"])))
