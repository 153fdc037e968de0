"""`python -m docs.ascend_runs`: executes the compiled Ascend kernel on small inputs → data/ascend_runs.json.

What the program that the NPU compiler emitted computes, against float64, and which faults npusim found in it. It is
planned for two cores, so that small inputs make a core run several tasks, where a task can meet the one before.
"""
from __future__ import annotations

import json

from mindspeed_kkt_plugin.kernels import ascend
from npusim import check, plans
from npusim.compile import compile_launch

from .figure_data import ASCEND_RUNS, DATA

TARGET = "Ascend910B2"
CORES = 2
# shape, dtype, regime, packed offsets: chunks of one head, heads of one chunk, tails, packed sequences, shared keys;
# several tasks a core; the last has tasks of 32 lanes.
CASES = (
    ((1, 3000, 1, 1, 128), "bf16", "random", None),
    ((1, 3000, 1, 1, 128), "bf16", "repeated", None),
    ((1, 100, 2, 2, 128), "bf16", "repeated", None),
    ((1, 100, 4, 8, 64), "fp16", "random", None),
    ((1, 192, 16, 16, 128), "fp32", "repeated", None),
    ((1, 300, 2, 2, 128), "bf16", "repeated", [0, 70, 70, 71, 290]),
    ((1, 700, 8, 8, 32), "bf16", "repeated", None),
    ((1, 1000, 8, 8, 32), "bf16", "repeated", None),
)


def plan(*inputs, num_cores: int, **options):
    """The operator's plan, for CORES cores whatever the chip has; npusim asks this module for it."""
    return ascend.plan(*inputs, num_cores=CORES, **options)


def execute(shape, dtype, regime, offsets) -> dict:
    made = plans.make("docs.ascend_runs", plans.Shape(*shape), dtype, cu_seqlens=offsets, target=TARGET, data=True,
                      regime=regime)
    compiled = [compile_launch(launch, TARGET) for launch in made.launches]
    launch, = made.launches
    return check.run(made, compiled, TARGET).as_dict() | {
        "op": "fused", "regime": regime, "cu_seqlens": offsets, "tasks": launch.args["num_tasks"],
        "cores": CORES, "lanes": launch.constants["LANES"]}


def main() -> None:
    runs = [execute(*case) for case in CASES]
    for run in runs:
        print(run["shape"], run["dtype"], run["regime"], f"{run['tasks']} tasks of {run['lanes']} lanes", run["error"],
              "sound" if run["sound"] else "NOT SOUND")
    content = {"kind": "computed by npusim", "target": TARGET, "runs": runs}
    (DATA / ASCEND_RUNS).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
