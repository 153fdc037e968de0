"""ATK's records: a case, one of its inputs, the data of a run, and what an executor is told about its task.

Slots make an undeclared attribute an error, as ATK's own models do. What may be in a file is in `schema.py`.
"""
from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class InputCaseConfig:
    name: str | None
    type: str
    required: bool
    dtype: str
    shape: list[int] | None
    range_values: Any
    backward: bool = False


@dataclass(slots=True)
class Standard:
    acc: Any = None
    perf: Any = "not_key"


@dataclass(slots=True)
class CaseConfig:
    id: int
    default_seed: int
    name: str
    aclnn_name: str
    version: str
    api: str
    api_type: str
    expected_error_msg: str | None
    backward: bool
    standard: Standard
    outputs: Any
    inputs: list[InputCaseConfig]

    def payload(self) -> dict:
        """The case as it stands in a case file."""
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: dict) -> CaseConfig:
        return cls(
            **{
                **payload,
                "standard": Standard(**payload["standard"]),
                "inputs": [InputCaseConfig(**entry) for entry in payload["inputs"]],
            }
        )


@dataclass
class InputDataset:
    args: list = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaskResult:
    case_config: CaseConfig
    backend: str
    name: str
    device_id: int = 0
    is_benchmark_task: bool = False
