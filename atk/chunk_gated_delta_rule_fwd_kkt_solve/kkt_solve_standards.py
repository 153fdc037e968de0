"""The accuracy standards of this package, in one place: which name to ask for, and how tight each one is.

`python kkt_solve_standards.py --cases IN --out OUT` rewrites a case file for the ATK that is installed.
"""
from __future__ import annotations

import argparse
import json
from pathlib import Path

PREFERRED = ("cv_fused_double_benchmark", "mixed_tolerance_bm", "single_bm")

OUTPUT_DTYPES = ("fp32", "fp16", "bf16")
# The common bar is 0.1 %: for fp32 and fp16 it bounds the error itself. Storing one number in bf16 costs up to 2^-8 =
# 0.39 %, so there it bounds what comes on top of that rounding.

_DOUBLE = {
    # Ratios to max(benchmark's error, 2^-14, 2^-11 or 2^-8). 5 x 2^-14 = 0.03 % for fp32: two equally good fp32
    # results differ by several times in their worst entry, which is small and made by cancellation.
    # 2 x 2^-11 = 0.098 % for fp16. 1.25 x 2^-8 = 0.49 % for bf16, 0.6 x 2^-8 = 0.23 % on average: rounding alone
    # costs 0.39 % at most and 0.14 % on average there.
    "fp32": {"max_re_ratio": 5, "avg_re_ratio": 1.5, "root_mean_squared_ratio": 1.5},
    "fp16": {"max_re_ratio": 2, "avg_re_ratio": 1.2, "root_mean_squared_ratio": 1.2},
    "bf16": {"max_re_ratio": 1.25, "avg_re_ratio": 0.6, "root_mean_squared_ratio": 1.0},
}
# rtol, atol, largest absolute error (unless within the ULP multiple); entries of the result lie near 1.
_MIXED = {
    "fp32": {"rtol": 2.0e-4, "atol": 1.0e-5, "max_abs_error_limit": 1.0e-4, "max_ulp_multiple": 32},
    "fp16": {"rtol": 9.7e-4, "atol": 1.0e-5, "max_abs_error_limit": 1.0e-3, "max_ulp_multiple": 2},
    "bf16": {"rtol": 4.9e-3, "atol": 1.0e-5, "max_abs_error_limit": 1.0e-3, "max_ulp_multiple": 1},
}
MATCHED_RATIO = 0.999  # ATK's own default is 0.99
# Newer versions read `mare_ratio` alone (largest relative error over 2^-13 / 2^-10 / 2^-7), older ones `*_error`.
_SINGLE = {
    "fp32": {"fp32_error": 6.0e-5, "mare_ratio": 1.0},
    "fp16": {"fp16_error": 9.7e-4, "mare_ratio": 1.0},
    "bf16": {"bf16_error": 4.9e-3, "mare_ratio": 0.62},
}


def accuracy_standard(name: str, output_dtype: str) -> dict:
    """The `standard.acc` of a case whose result has `output_dtype` (fp32, fp16 or bf16), under standard `name`."""
    if output_dtype not in OUTPUT_DTYPES:
        raise ValueError(f"output_dtype is {output_dtype!r}; allowed: {', '.join(OUTPUT_DTYPES)}")
    if name == "cv_fused_double_benchmark":
        return {name: dict(_DOUBLE[output_dtype])}
    if name == "mixed_tolerance_bm":
        parameters = {f"{output_dtype}_{key}": value for key, value in _MIXED[output_dtype].items()}
        return {name: {**parameters, f"{output_dtype}_required_matched_ratio": MATCHED_RATIO}}
    if name == "single_bm":
        return {name: {"type": "high_precision", **_SINGLE[output_dtype]}}
    raise ValueError(f"standard is {name!r}; allowed: {', '.join(PREFERRED)}")


def output_dtype(case: dict) -> str:
    """The result's dtype of a case from a case file."""
    values = {entry["name"]: entry for entry in case["inputs"]}
    asked = values["output_dtype"]["range_values"]
    return values["k"]["dtype"] if asked == "same" else asked


def registered_standard() -> str:
    """The first preferred standard that the installed ATK knows."""
    try:
        from atk.tasks.task_plugins_register import ACCURACY_REGISTRY
    except ImportError as error:
        raise SystemExit(f"cannot read ATK's registry of standards ({error}); pass --standard NAME") from error
    for name in PREFERRED:
        if name in ACCURACY_REGISTRY:
            return name
    raise SystemExit(f"the installed ATK registers none of {', '.join(PREFERRED)}; pass --standard NAME")


def rewrite(cases: list[dict], name: str) -> list[dict]:
    """The same cases, judged by standard `name`."""
    return [
        {**case, "standard": {**case["standard"], "acc": accuracy_standard(name, output_dtype(case))}} for case in cases
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=Path, required=True, help="frozen case file")
    parser.add_argument("--out", type=Path, required=True, help="where the rewritten file goes")
    parser.add_argument("--standard", choices=("auto", *PREFERRED), default="auto")
    options = parser.parse_args()
    name = registered_standard() if options.standard == "auto" else options.standard
    options.out.parent.mkdir(parents=True, exist_ok=True)
    cases = rewrite(json.loads(options.cases.read_text(encoding="utf-8")), name)
    options.out.write_text(json.dumps(cases, ensure_ascii=False), encoding="utf-8")
    print(f"standard {name}: {len(cases)} cases -> {options.out}")


if __name__ == "__main__":
    main()
