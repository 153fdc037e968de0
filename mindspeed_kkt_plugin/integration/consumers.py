"""The training forwards that call `solve_tril(chunk_scaled_dot_kkt_fwd(...))`, one row each.

A new call site is a new row here. How a row is patched is in `forward.py`; when, in `routes.py` and `feature.py`.
"""
from __future__ import annotations

from dataclasses import dataclass

KKT = "chunk_scaled_dot_kkt_fwd"  # the two globals that every consumer calls
SOLVE = "solve_tril"


@dataclass(frozen=True)
class Consumer:
    """module.function makes the pair of calls; chosen_by: the user's setting, for messages.

    head_first_k: its k is `[B, H, T, K]`; head_first_A: it transposes A to `[B, H, T, BT]` right after the pair;
    switch: the Megatron argument that selects it (None: whoever imports the module has selected it).
    """

    id: str
    module: str
    function: str
    chosen_by: str
    head_first_k: bool = False
    head_first_A: bool = False
    switch: str | None = None

    @property
    def target(self) -> str:
        return f"{self.module}.{self.function}"

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]


_LLM = "mindspeed_llm.tasks.models.transformer"
_MM = "mindspeed_mm.fsdp.ops.gdn"

CONSUMERS = (
    Consumer("L1", f"{_LLM}.chunk_gated_delta_rule", "chunk_gated_delta_rule_fwd", "use_triton_gdn",
             switch="use_triton_gdn"),
    Consumer("L2", f"{_LLM}.flash_gated_delta_rule", "flash_chunk_gated_delta_rule_fwd", "use_flash_gdn",
             head_first_A=True),
    Consumer("M1", f"{_MM}.chunk_gated_delta_rule", "chunk_gated_delta_rule_fwd", "gdn_implementation: triton"),
    Consumer("M2", f"{_MM}.flash_chunk_gated_delta_rule", "chunk_gated_delta_rule_fwd",
             "gdn_implementation: ascendc_legacy", head_first_A=True),
    Consumer("M3", f"{_MM}.flash_gated_delta_rule", "flash_chunk_gated_delta_rule_fwd",
             "gdn_implementation: ascendc", head_first_k=True, head_first_A=True),
)
