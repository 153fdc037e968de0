"""What may stand in a design YAML, a case file and a node file: keys, types and allowed words; anything else raises.

Written from ATK's documented formats, narrowed to what every known version accepts.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

TENSOR_DTYPES = {"fp64", "fp32", "fp16", "bf16", "hf32", "int8", "int16", "int32", "int64", "uint8", "bool"}
ATTR_DTYPES = {"int", "float", "double", "int64_t", "string", "bool", "attr_bool", "non_param"}
BUILT_IN_API_TYPES = {"function", "aclnn_function", "triton_function"}
STANDARDS = {
    "cv_fused_double_benchmark": {"max_re_ratio", "avg_re_ratio", "root_mean_squared_ratio"},
    "mixed_tolerance_bm": {
        f"{dtype}_{key}"
        for dtype in ("fp16", "bf16", "fp32", "hf32")
        for key in ("rtol", "atol", "required_matched_ratio", "max_abs_error_limit", "max_ulp_multiple")
    },
    "single_bm": {"type", "mare_ratio"} | {f"{d}_{k}" for d in ("fp16", "bf16", "fp32") for k in ("error", "eb")},
}
PERF_NAMES = {"not_key", "key", "DSA"}
TASKS = {"accuracy", "accuracy_dc", "performance_device", "performance_e2e"}
BACKENDS = {"npu", "cpu", "gpu", "pyaclnn"}


class SchemaError(ValueError):
    pass


Check = Callable[[str, Any], None]


def _fail(where: str, what: str) -> None:
    raise SchemaError(f"{where}: {what}")


def kind(*types: type) -> Check:
    def check(where, value):
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            _fail(where, f"is {value!r}; allowed: {', '.join(t.__name__ for t in types)}")

    return check


def word(*allowed) -> Check:
    def check(where, value):
        if value not in allowed:
            _fail(where, f"is {value!r}; allowed: {', '.join(map(repr, allowed))}")

    return check


def anything(where, value) -> None:
    return None


def mapping(required: dict[str, Check], optional: dict[str, Check] | None = None) -> Check:
    allowed = {**required, **(optional or {})}

    def check(where, value):
        kind(dict)(where, value)
        for key in value:
            if key not in allowed:
                _fail(where, f"unknown key {key!r}; allowed: {', '.join(allowed)}")
        for key in required:
            if key not in value:
                _fail(where, f"key {key!r} is missing")
        for key, item in value.items():
            allowed[key](f"{where}.{key}", item)

    return check


def listing(item: Check, minimum: int = 1) -> Check:
    def check(where, value):
        kind(list)(where, value)
        if len(value) < minimum:
            _fail(where, f"holds {len(value)} entries; at least {minimum} needed")
        for i, entry in enumerate(value):
            item(f"{where}[{i}]", entry)

    return check


def accuracy(where, value) -> None:
    kind(dict)(where, value)
    if len(value) != 1 or next(iter(value)) not in STANDARDS:
        _fail(where, f"must hold exactly one of {', '.join(STANDARDS)}, got {list(value)}")
    name, parameters = next(iter(value.items()))
    number = kind(int, float, str) if name == "single_bm" else kind(int, float)
    mapping({}, {key: number for key in sorted(STANDARDS[name])})(f"{where}.{name}", parameters)


def performance(where, value) -> None:
    if isinstance(value, list):
        listing(kind(int, float), 2)(where, value)
        if len(value) != 2:
            _fail(where, f"is {value!r}; allowed: [average ratio, ratio of each case]")
    else:
        word(*sorted(PERF_NAMES))(where, value)


def api_type(where, value) -> None:
    kind(str)(where, value)
    if value in BUILT_IN_API_TYPES or "tensor" in value or "method" in value:
        _fail(where, f"is {value!r}; built-in names and names with 'tensor' or 'method' are taken by ATK itself")


def nullable(check: Check) -> Check:
    return lambda where, value: None if value is None else check(where, value)


_STANDARD = mapping({"acc": accuracy, "perf": performance})
_VALUES = mapping({"values": listing(anything)}, {"weights": listing(kind(int, float))})
# `invalid` must be there: without it ATK puts NaN and Inf into some of the data.
_RANGES = mapping({"valid": _VALUES, "invalid": mapping({"values": listing(anything, 0)})})
_INPUT = {"name": kind(str), "required": kind(bool), "ranges": _RANGES}
_SHAPES = mapping({"dim_numbers": _VALUES, "dim_values": _VALUES}, {"max_length": kind(int)})


def _dtypes(allowed: set[str]) -> Check:
    return mapping({"values": listing(word(*sorted(allowed)))}, {"weights": listing(kind(int, float))})


_TENSOR = mapping({**_INPUT, "type": word("tensor"), "dtypes": _dtypes(TENSOR_DTYPES), "shapes": _SHAPES})
_ATTR = mapping({**_INPUT, "type": word("attr"), "dtypes": _dtypes(ATTR_DTYPES)})


def _design_input(where, value) -> None:
    kind(dict)(where, value)
    word("tensor", "attr")(f"{where}.type", value.get("type"))
    (_TENSOR if value["type"] == "tensor" else _ATTR)(where, value)


DESIGN = mapping(
    {
        "name": kind(str), "api": word("pytorch"), "version": word("v2.1"), "api_type": api_type,
        "generate": kind(str), "dtype_numbers": kind(int), "extra_numbers": word(0), "standard": _STANDARD,
        "inputs": listing(_design_input),
    },
    {"shape_distributions": listing(listing(kind(int, float)))},
)  # fmt: skip


def _case_input(where, value) -> None:
    kind(dict)(where, value)
    tensor = value.get("type") == "tensor"
    mapping(
        {
            "name": kind(str), "type": word("tensor", "attr"), "required": kind(bool), "backward": word(False),
            "dtype": word(*sorted(TENSOR_DTYPES if tensor else ATTR_DTYPES)),
            "shape": listing(kind(int)) if tensor else word(None),
            "range_values": listing(kind(int, float)) if tensor else kind(bool, int, float, str),
        }
    )(where, value)  # fmt: skip


_CASE = mapping(
    {
        "id": kind(int), "default_seed": kind(int), "name": kind(str), "aclnn_name": kind(str),
        "version": word("v2.1"), "api": word("pytorch"), "api_type": api_type,
        "expected_error_msg": nullable(kind(str)),
        "backward": word(False), "standard": _STANDARD, "outputs": word(None), "inputs": listing(_case_input),
    }
)  # fmt: skip


def CASES(where, value) -> None:
    """A case file: a list of cases whose (name, id) pairs differ."""
    listing(_CASE)(where, value)
    pairs = [(case["name"], case["id"]) for case in value]
    if len(set(pairs)) != len(pairs):
        _fail(where, "two cases share name and id")


NODES = mapping(
    {
        "nodes": listing(
            mapping(
                {"backend": word(*sorted(BACKENDS)), "task": listing(word(*sorted(TASKS)))},
                {"name": kind(str), "devices": listing(kind(int)), "run_modes": listing(kind(str), 0)},
            )
        )
    }
)
