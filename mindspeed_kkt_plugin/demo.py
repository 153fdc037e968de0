"""The main job: the fused operator on activations of a real Gated DeltaNet layer, compared three ways.

`python -m mindspeed_kkt_plugin.demo [--device cpu|cuda|npu] [--seq-len N] [--json]`. Exits 1 when a bound is missed.
The layer is in demo_layer.py, the picture in demo_plot.py. Needs transformers, rich and matplotlib.
"""
from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from pathlib import Path

FP32_BOUND = 1e-5  # worst chunk's relative Frobenius error; a 16-bit result may be 1.1 times its rounding floor
ROUNDING_FACTOR = 1.1
LAYER_FP32_BOUND = 1e-5
LAYER_ROUNDING_FACTOR = 1.5  # of what A, exact and rounded once, does to the layer's output


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    device = options.device or _best_device()
    if device == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it once, when it is first imported
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    try:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError as error:
        sys.exit(f"the demo needs {error.name}: pip install -r requirements-dev.txt")

    console = Console(stderr=options.json)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=not options.json) as progress:
        report = measure(device, options.seq_len, Path(options.out), lambda text: _step(progress, text))
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _show(console, report)
    return 0 if report["ok"] else 1


def _options(argv):
    parser = argparse.ArgumentParser(prog="python -m mindspeed_kkt_plugin.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda", "npu"), help="default: npu, else cuda, else cpu")
    parser.add_argument("--seq-len", type=int, default=500, help="tokens, here bytes of text (default 500: has a tail)")
    parser.add_argument("--out", default="demo_out", help="folder for the picture (default demo_out)")
    parser.add_argument("--json", action="store_true", help="print JSON on standard output instead of a table")
    options = parser.parse_args(argv)
    if options.seq_len < 1:
        parser.error(f"--seq-len is {options.seq_len}; it must be at least 1")
    return options


def _best_device() -> str:
    import torch

    try:
        import torch_npu  # noqa: F401
    except ImportError:
        pass
    for kind in ("npu", "cuda"):
        if hasattr(torch, kind) and getattr(torch, kind).is_available():
            return kind
    return "cpu"


def _step(progress, text: str) -> None:
    for task in progress.task_ids:
        progress.update(task, total=1, completed=1)
    progress.add_task(text, total=None)


def measure(device: str, seq_len: int, out: Path, step=lambda text: None) -> dict:
    """Run everything and return the report; its `ok` says whether every bound was met."""
    import torch

    from . import chunk_gated_delta_rule_fwd_kkt_solve, reference, status
    from .demo_layer import CHUNK, Layer, chunked_attention, text_bytes
    from .demo_plot import draw

    step("building a Qwen3.5 Gated DeltaNet layer and running it on the README")
    layer = Layer(torch.device(device))
    tokens = text_bytes(seq_len).to(device)
    own_output, x = layer.run(tokens)
    report = {"device": _device_name(device), "seq_len": seq_len, "k": list(x.k.shape), "value_heads": x.g.shape[2],
              "bound_on": "worst chunk's relative Frobenius error", "comparisons": [], "seconds": {}}
    curves, picture = {}, None

    def timed(name, call):
        _wait(device)
        start = time.perf_counter()
        result = call()
        _wait(device)
        report["seconds"][name] = round(time.perf_counter() - start, 3)
        return result

    def compare(what, result, truth, bound, **extra):
        error = _chunk_errors(result, truth, CHUNK)
        entry = {"what": what, "worst": error.max().item(), "mean": _mean_relative(result, truth), "bound": bound}
        report["comparisons"].append({**entry, "ok": entry["worst"] <= bound, **extra})
        return error

    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        k = x.k.to(dtype)
        truth = reference.kkt_solve(k.cpu(), x.g.cpu(), x.beta.cpu())
        floor = _chunk_errors(truth.to(dtype), truth, CHUNK).max().item()
        bound = FP32_BOUND if dtype == torch.float32 else ROUNDING_FACTOR * floor
        step(f"{name}: fused operator")
        fused = timed(f"fused {name}", lambda k=k: chunk_gated_delta_rule_fwd_kkt_solve(k, x.g, x.beta))
        path = status()["last"]
        curves[f"fused, {name}"] = compare(f"fused against float64, {name}", fused, truth, bound, path=path["path"])
        report["path"] = path
        step(f"{name}: two-call chain")
        pair, reason = _two_calls(timed, name, k, x, dtype)
        if reason is None:
            curves[f"two calls, {name}"] = compare(f"two calls against float64, {name}", pair, truth, bound)
        else:
            report["two_calls_not_run"] = reason
        step(f"{name}: the layer with A from the fused operator")
        output, _ = layer.run(tokens, lambda x, A=fused: chunked_attention(x, A))
        bound = LAYER_FP32_BOUND
        if dtype != torch.float32:
            once = truth.to(device, dtype)
            rounded, _ = layer.run(tokens, lambda x, A=once: chunked_attention(x, A))
            bound = LAYER_ROUNDING_FACTOR * _relative(rounded, own_output)
        worst = _relative(output, own_output)
        report["comparisons"].append({"what": f"layer output against transformers, {name}", "worst": worst,
                                      "mean": _mean_relative(output, own_output), "bound": bound, "ok": worst <= bound})
        picture = fused if picture is None else picture
    step("picture")
    path = out / "demo.png"
    rows = min(CHUNK, seq_len)
    draw(path, curves, torch.nn.functional.pad(picture[0, :rows, 0], (0, 0, 0, CHUNK - rows)),
         f"Qwen3.5 Gated DeltaNet layer on {seq_len} bytes of text; measured on {report['device']}, "
         f"path '{report['path']['path']}'")
    report["picture"] = str(path)
    report["ok"] = all(entry["ok"] for entry in report["comparisons"])
    return report


def _two_calls(timed, name, k, x, dtype):
    """(result, None), or (None, why the chain cannot run here)."""
    try:
        from . import unfused
    except ImportError as error:
        return None, f"the two-call chain needs Triton: {error}"
    if k.device.type == "cpu" and not unfused.INTERPRETED:
        return None, "on the CPU the two-call chain needs TRITON_INTERPRET=1"

    def chain():
        return unfused.solve_tril(unfused.chunk_scaled_dot_kkt_fwd(k, x.g, beta=x.beta), output_dtype=dtype)

    return timed(f"two calls {name}", chain), None


def _chunk_errors(result, truth, chunk: int):
    """Worst head's relative Frobenius error of every chunk, `[NT]`."""
    import torch.nn.functional as F

    truth = truth.double().cpu()
    gap = result.double().cpu() - truth
    squares = [F.pad(y.square().sum(-1), (0, 0, 0, -y.shape[1] % chunk)).unflatten(1, (-1, chunk)).sum(2)
               for y in (gap, truth)]
    return (squares[0] / squares[1]).sqrt().amax((0, 2))


def _relative(result, truth) -> float:
    return ((result - truth).double().norm() / truth.double().norm()).item()


def _mean_relative(result, truth) -> float:
    truth = truth.double().cpu()
    return ((result.double().cpu() - truth).abs().sum() / truth.abs().sum()).item()


def _wait(device: str) -> None:
    import torch

    if device != "cpu":
        getattr(torch, device).synchronize()


def _device_name(device: str) -> str:
    import torch

    return "CPU" if device == "cpu" else getattr(torch, device).get_device_name()


def _show(console, report: dict) -> None:
    from rich.table import Table

    console.print(f"Device [bold]{report['device']}[/], path [bold]{report['path']['path']}[/] "
                  f"({report['path']['why']}); k {report['k']}, {report['value_heads']} value heads.")
    table = Table(title="Accuracy (worst chunk: relative Frobenius error, which the bound is on)")
    for column in ("comparison", "worst chunk", "mean, relative", "bound", "met"):
        table.add_column(column, justify="left" if column == "comparison" else "right")
    for entry in report["comparisons"]:
        table.add_row(entry["what"], *(f"{entry[name]:.2e}" for name in ("worst", "mean", "bound")),
                      "[green]yes[/]" if entry["ok"] else "[bold red]NO[/]")
    console.print(table)
    if "two_calls_not_run" in report:
        console.print(f"[yellow]Not compared:[/] {report['two_calls_not_run']}")
    console.print(f"Picture: {report['picture']}")
    if not report["ok"]:
        console.print("[bold red]An accuracy bound was missed.[/]")


if __name__ == "__main__":
    sys.exit(main())
