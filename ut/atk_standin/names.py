"""ATK's import names, bound to the stand-in's classes: what the generator and executor plugins import.

`install()` puts them into `sys.modules`, unless a real ATK is there.
"""
from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from . import configs


class Registry(dict):
    """Classes by name, filled by a decorator; a later plugin replaces an earlier one."""

    def register(self, key: str):
        def keep(cls):
            self.register_with_key(key, cls)
            return cls

        return keep

    def register_with_key(self, key: str, cls: type) -> None:
        self[key] = cls


class CaseGenerator:
    def __init__(self, config):
        self.config = config
        self.index = 0

    def after_input_config(self, index, input_case):
        return input_case

    def after_case_config(self, case_config):
        return case_config


class BaseApi:
    def __init__(self, task_result: configs.TaskResult):
        self.task_result = task_result
        self.api_name = task_result.case_config.name
        self.device = task_result.backend
        self.device_id = task_result.device_id
        self.name = task_result.name
        self.output = task_result.case_config.outputs

    def init_by_input_data(self, input_data: configs.InputDataset):
        return None

    def __call__(self, input_data: configs.InputDataset, with_output: bool = False):
        raise NotImplementedError


class AclnnBaseApi(BaseApi):
    pass


GENERATORS = Registry()
EXECUTORS = Registry()

NAMES = {
    "atk.case_generator.generator.base_generator": {"CaseGenerator": CaseGenerator},
    "atk.case_generator.generator.generate_types": {"GENERATOR_REGISTRY": GENERATORS},
    "atk.configs.case_config": {"CaseConfig": configs.CaseConfig, "InputCaseConfig": configs.InputCaseConfig},
    "atk.configs.dataset_config": {"InputDataset": configs.InputDataset},
    "atk.configs.results_config": {"TaskResult": configs.TaskResult},
    "atk.tasks.api_execute": {"register": EXECUTORS.register},
    "atk.tasks.api_execute.base_api": {"BaseApi": BaseApi},
    "atk.tasks.api_execute.aclnn_base_api": {"AclnnBaseApi": AclnnBaseApi},
}


def real_atk() -> bool:
    """Whether a real ATK is installed. The operator packages' own `atk` folder does not count: it holds no `tasks`."""
    if getattr(sys.modules.get("atk"), "STANDIN", False):
        return False
    try:
        return importlib.util.find_spec("atk.tasks") is not None
    except ModuleNotFoundError:
        return False


def install() -> bool:
    """Provide ATK's names from here; False when a real ATK is installed, which is then left alone."""
    if real_atk():
        return False
    for path, members in NAMES.items():
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            if name not in sys.modules:
                module = sys.modules[name] = ModuleType(name, "stand-in, see ut/atk_standin")
                module.__path__ = []
                if depth > 1:
                    setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], module)
        for member, value in members.items():
            setattr(sys.modules[path], member, value)
    sys.modules["atk"].STANDIN = True
    return True
