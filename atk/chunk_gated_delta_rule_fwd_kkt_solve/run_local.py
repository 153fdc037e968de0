#!/usr/bin/env python3
"""Runs this package's cases where ATK is not installed: same case files, generator and executor, a report like ATK's.

    python run_local.py accuracy|performance [--device cpu|cuda|npu] [--cases FILE]     python run_local.py gen_cases

Needs the repository around it (ut/atk_standin). Exits 1 when a case fails, 2 when it cannot start.
"""
from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OPERATOR = HERE.name
CASE_FILES = {"accuracy": HERE / f"atk_{OPERATOR}.json", "performance": HERE / f"atk_{OPERATOR}_perf.json"}
DESIGNS = {"accuracy": HERE / f"{OPERATOR}.yaml", "performance": HERE / f"{OPERATOR}_perf.yaml"}


def prepare_process(device: str, executor: Path, jobs: int) -> None:
    """Everything that must happen before triton is imported, in this process and in every worker."""
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, str(ROOT))
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    from ut.atk_standin import generate, names

    if not names.install():
        raise SystemExit("ATK is installed here: use run_atk.sh; this runner stands in for ATK where it is missing")
    generate.load_plugin(executor)


def spread(work, items: list, options: argparse.Namespace) -> list:
    """`work` on every item, in order, in `--jobs` processes; prints one line per result."""
    if options.jobs == 1:
        return collect(items, map(work, items))
    context = multiprocessing.get_context("spawn")
    start = (options.device, options.executor, options.jobs)
    with ProcessPoolExecutor(options.jobs, context, prepare_process, start) as pool:
        return collect(items, pool.map(work, items))


def collect(items: list, found) -> list:
    results = []
    for item, result in zip(items, found, strict=True):
        results.append(result)
        print(f"[{len(results)}/{len(items)}] {item.name.removeprefix(OPERATOR + '_')}: {one_line(result)}", flush=True)
    return results


def one_line(result: dict | str) -> str:
    """What a row, or the outcome of a check, says in a few words."""
    if isinstance(result, str):
        return result or "operator and chain agree"
    if result["失败原因"]:
        return f"{result['运行结果']}: {result['失败原因']}"
    figures = [f"{key} {value}" for key, value in result.items() if "性能" in key and "通过" not in key]
    return ", ".join(figures) or "pass"


def device_name(device: str) -> str:
    import torch

    if device == "cpu":
        return "CPU, Triton's interpreter"
    if device == "npu":
        import torch_npu  # noqa: F401
    backend = getattr(torch, device)
    if not backend.is_available():
        raise SystemExit(f"--device {device}: torch sees no such device")
    return f"{backend.get_device_name()}, torch {torch.__version__}"


def run_accuracy(cases: list, options: argparse.Namespace) -> tuple[list, dict]:
    from ut.atk_standin import accuracy

    rows = spread(partial(accuracy.run_case, device=options.device, max_tasks=options.max_tasks), cases, options)
    return rows, accuracy.summarise(rows, options.device, device_name(options.device))


def run_performance(cases: list, options: argparse.Namespace) -> tuple[list, dict]:
    from ut.atk_standin import performance

    if options.device == "cpu":  # no device to time: estimates, which may run side by side
        rows = spread(partial(performance.measure, device="cpu"), cases, options)
    else:
        problems = spread(partial(performance.verify, device=options.device), cases, options)
        pairs = dict(zip((case.id for case in cases), problems, strict=True))
        options.jobs = 1  # one timing at a time; the kernels are compiled by now
        rows = spread(lambda case: performance.measure(case, options.device, pairs[case.id]), cases, options)
    return rows, performance.summarise(rows, cases, options.device, device_name(options.device))


def gen_cases() -> int:
    """Write the frozen case files anew from the designs."""
    from ut.atk_standin import generate

    generate.load_plugin(HERE / f"gen_{OPERATOR}.py")
    for kind, design in DESIGNS.items():
        cases = generate.generate(generate.read_design(design))
        generate.write_cases(cases, CASE_FILES[kind])
        print(f"{len(cases)} {kind} cases -> {CASE_FILES[kind].name}")
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scope", choices=("accuracy", "performance", "gen_cases"))
    parser.add_argument("--device", choices=("cpu", "cuda", "npu"), default="cpu")
    parser.add_argument("--cases", type=Path, help="case file; default: the frozen one of the scope")
    parser.add_argument("--select", default="", help="only cases whose name contains this")
    parser.add_argument("--jobs", type=int, help="processes, but one for timings; default: 8 on cuda, else 1")
    parser.add_argument("--max-tasks", type=int, default=64, help="cpu: largest case, in (chunk, head) pairs")
    parser.add_argument("--executor", type=Path, default=HERE / f"executor_{OPERATOR}.py", help="executor plugin")
    parser.add_argument("--out", type=Path, default=Path("atk_output"), help="folder of the report")
    options = parser.parse_args(arguments)
    if options.jobs is None:  # compiling some hundred kernels is what takes long on cuda
        options.jobs = min(8, os.cpu_count() or 1) if options.device == "cuda" else 1
    if options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}; it must be at least 1")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if not (ROOT / "ut/atk_standin").is_dir():
        print("run_local.py needs ut/atk_standin of its repository; with ATK, use run_atk.sh", file=sys.stderr)
        return 2
    prepare_process(options.device, options.executor, jobs=1)  # this process works alone, or waits for the others
    if options.scope == "gen_cases":
        return gen_cases()
    from ut.atk_standin import generate, report

    cases = [c for c in generate.read_cases(options.cases or CASE_FILES[options.scope]) if options.select in c.name]
    if not cases:
        print(f"no case has {options.select!r} in its name", file=sys.stderr)
        return 2
    start = time.perf_counter()
    rows, summary = (run_accuracy if options.scope == "accuracy" else run_performance)(cases, options)
    path = report.write(rows, [summary], options.out, f"{OPERATOR}_{options.scope}_{options.device}")
    for row in rows:
        if row["失败原因"]:
            print(f"  {row['编号']} {row['名称']}: {row['运行结果']}, {row['失败原因']}")
    print("\n".join(f"{key}: {value}" for key, value in summary.items()))
    print(f"{time.perf_counter() - start:.0f} s; report: {path}")
    verdict = summary["精度是否达标" if options.scope == "accuracy" else "device性能是否达标"]
    return 0 if verdict == "Pass" else 1


if __name__ == "__main__":
    sys.exit(main())
