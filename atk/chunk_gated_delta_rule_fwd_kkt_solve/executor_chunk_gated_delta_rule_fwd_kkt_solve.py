"""ATK executor plugin: which of the four roles a node plays, and the call that ATK times for it.

fused: the operator under test. chain: MindSpeed's two calls, kkt and then solve (node `gold`). golden: float64 by
forward substitution on the CPU. same_precision: the same in float32, rounded to the result's dtype.
"""
from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch  # noqa: E402
from atk.configs.dataset_config import InputDataset  # noqa: E402
from atk.configs.results_config import TaskResult  # noqa: E402
from atk.tasks.api_execute import register  # noqa: E402
from atk.tasks.api_execute.base_api import BaseApi  # noqa: E402

try:  # some versions register nothing unless this file also holds the name AclnnBaseApi
    from atk.tasks.api_execute.aclnn_base_api import AclnnBaseApi  # noqa: E402, F401
except ImportError:
    AclnnBaseApi = BaseApi

from kkt_solve_inputs import Operands, prepare  # noqa: E402

from mindspeed_kkt_plugin import reference  # noqa: E402

BASELINE_NODE = "gold"
DUT_NODE = "dut"
ACCELERATORS = {"npu": "npu", "gpu": "cuda"}
FUSED_PATHS = ("ascend", "portable")
ASCEND_CHUNK = 64  # the Ascend kernel takes no other: on an NPU those cases run the two-call chain


def role_of(backend: str, node: str, is_golden: bool) -> str:
    """The role of a node; a combination without one is refused rather than guessed."""
    if is_golden and backend != "cpu":
        raise RuntimeError(f"the golden run is on {backend!r}; pass `-bd cpu`, float64 substitution runs on the CPU")
    if is_golden:
        return "golden"
    if backend in ACCELERATORS:
        return "chain" if node == BASELINE_NODE else "fused"
    if backend == "cpu":  # a cpu node of this name runs the kernels under Triton's interpreter
        return {DUT_NODE: "fused", BASELINE_NODE: "chain"}.get(node, "same_precision")
    raise RuntimeError(f"backend is {backend!r}; allowed: cpu, {', '.join(ACCELERATORS)}")


def run_fused(x: Operands) -> torch.Tensor:
    from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve

    return chunk_gated_delta_rule_fwd_kkt_solve(
        x.k,
        x.g,
        x.beta,
        cu_seqlens=x.cu_seqlens,
        chunk_size=x.chunk_size,
        output_dtype=x.output_dtype,
        chunk_indices=x.chunk_indices,
        head_first=x.head_first,
        output_head_first=x.output_head_first,
    )


def baseline() -> str:
    """Whose two calls are the baseline: this plugin's kernels, or MindSpeed's own with KKT_SOLVE_BASELINE=mindspeed."""
    chosen = os.environ.get("KKT_SOLVE_BASELINE", "plugin")
    if chosen not in ("plugin", "mindspeed"):
        raise ValueError(f"KKT_SOLVE_BASELINE is {chosen!r}; allowed: plugin, mindspeed")
    return chosen


def as_mindspeed_takes_them(x: Operands) -> Operands:
    """MindSpeed's kkt wants g, beta and as many key as value heads: its models repeat the keys before the call."""
    heads = 1 if x.head_first else 2
    shape = next((t.shape for t in (x.g, x.beta) if t is not None), x.k.shape[:3])
    g = x.k.new_zeros(shape, dtype=torch.float32) if x.g is None else x.g
    beta = x.k.new_ones(shape) if x.beta is None else x.beta
    return replace(x, k=x.k.repeat_interleave(shape[heads] // x.k.shape[heads], dim=heads), g=g, beta=beta)


def run_chain(x: Operands) -> torch.Tensor:
    """Two calls with MindSpeed's signatures. They know one layout only, so a head-first case transposes around them."""
    if baseline() == "plugin":
        from mindspeed_kkt_plugin.unfused import chunk_scaled_dot_kkt_fwd as kkt
        from mindspeed_kkt_plugin.unfused import solve_tril as solve
    else:
        from mindspeed.ops.triton.chunk_scaled_dot_kkt import chunk_scaled_dot_kkt_fwd as kkt
        from mindspeed.ops.triton.solve_tril import solve_tril as solve
    k, g, beta = (t.transpose(1, 2) if t is not None and x.head_first else t for t in (x.k, x.g, x.beta))
    low = kkt(k, g=g, beta=beta, cu_seqlens=x.cu_seqlens, chunk_size=x.chunk_size, output_dtype=torch.float32)
    out = solve(low, cu_seqlens=x.cu_seqlens, output_dtype=x.output_dtype)
    return out.transpose(1, 2) if x.output_head_first else out


def run_reference(x: Operands, dtype: torch.dtype) -> torch.Tensor:
    return reference.kkt_solve(
        x.k,
        x.g,
        x.beta,
        x.cu_seqlens,
        x.chunk_size,
        head_first=x.head_first,
        output_head_first=x.output_head_first,
        dtype=dtype,
    )


@register("executor_kkt_solve")
class KktSolveApi(BaseApi):
    def __init__(self, task_result: TaskResult):
        super().__init__(task_result)
        case = task_result.case_config
        self.role = role_of(
            str(self.device),
            str(getattr(task_result, "name", "") or ""),
            bool(getattr(task_result, "is_benchmark_task", False)),
        )
        self.dtypes = {entry.name: entry.dtype for entry in case.inputs}
        self.seed = int(case.default_seed)
        self.operands: Operands | None = None
        self.path: str | None = None  # what made the last output: a kernel of the operator, or the role

    def init_by_input_data(self, input_data: InputDataset):
        """Build the operands and, on a device, make the first call: compilation stays out of the measurement."""
        operands = prepare(input_data.kwargs, self.dtypes, self.seed)
        if self.device in ACCELERATORS:
            if self.device == "npu":
                import torch_npu  # noqa: F401
            operands = operands.to(f"{ACCELERATORS[self.device]}:{int(self.device_id or 0)}")
        if self.role == "chain" and baseline() == "mindspeed":
            operands = as_mindspeed_takes_them(operands)
        self.operands = operands
        if self.role in ("fused", "chain") and self.device in ACCELERATORS:
            self._checked_run()

    def _run(self) -> torch.Tensor:
        if self.role == "fused":
            return run_fused(self.operands)
        if self.role == "chain":
            return run_chain(self.operands)
        if self.role == "golden":
            return run_reference(self.operands, torch.float64).float()
        return run_reference(self.operands, torch.float32).to(self.operands.output_dtype)

    def _checked_run(self) -> torch.Tensor:
        """Run, and refuse a result of the operator that came from another path than this case should take."""
        out = self._run()
        self.path = self.role
        if self.role == "fused":
            from mindspeed_kkt_plugin import status

            last = status()["last"]
            self.path = last["path"]
            chain_is_right = self.device == "npu" and self.operands.chunk_size != ASCEND_CHUNK
            if self.path not in FUSED_PATHS and not (chain_is_right and self.path == "two_call"):
                raise RuntimeError(f"the operator fell back to {self.path!r}: {last['why']}")
        return out

    def __call__(self, input_data: InputDataset, with_output: bool = False):
        if self.operands is None:  # versions that skip init_by_input_data for some tasks
            self.init_by_input_data(input_data)
        if not with_output:
            self._run()
            return None
        out = self._checked_run().detach().cpu().contiguous()
        # ATK passes any output when the golden holds NaN, so a non-finite result must not get that far.
        if not torch.isfinite(out.float()).all():
            raise FloatingPointError(f"the {self.role} result holds NaN or Inf")
        return out
