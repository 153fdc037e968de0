"""The command line: `python -m npusim compile|resources|run|time|report`. Arguments in, text or JSON out.

Each command is a few lines over the module that does the work; tables over shapes are report.py.
"""
from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .errors import NpusimError

DEFAULT_SHAPE = {"run": "1,100,2,2,128", "compile": "1,16384,8,8,128", "resources": "1,16384,8,8,128",
                 "time": "1,16384,8,8,128"}


def main(argv: list[str] | None = None) -> int:
    """Run one command. 0: done and sound; 1: an error (one line on stderr), or `run` found a fault or a wrong value."""
    options = _parser().parse_args(argv)
    try:
        return COMMANDS[options.command](options)
    except NpusimError as error:
        print(f"npusim: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m npusim", description=sys.modules["npusim"].__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {"compile": "write NAME.hivm.mlir per kernel and launch.json to --out",
             "resources": "memory, workspace, hand-offs and instructions per task",
             "run": "execute the compiled program on CPU data and compare with the float64 reference",
             "time": "estimated µs per launch", "report": "table and plot over the standard shapes"}
    for name, text in helps.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--op", required=name != "report", default="fused",
                             help="fused, unfused, upstream (the chain of the checkout named by --mindspeed-src), "
                                  "or a module.with.dots that has a plan function like the plugin's"
                                  + (", compared with unfused; default %(default)s" if name == "report" else ""))
        if name != "report":
            command.add_argument("--shape", default=DEFAULT_SHAPE[name], metavar="B,T,H,HV,K",
                                 help="default %(default)s")
            command.add_argument("--varlen", metavar="0,100,…", help="offsets of packed sequences (B = 1)")
        command.add_argument("--dtype", default="bf16", help="of k, beta and the result: bf16, fp16 or fp32")
        command.add_argument("--target", default="Ascend910B2", help="default %(default)s")
        command.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                             help="compiler option, over the kernel's own (repeat for more)")
        command.add_argument("--mindspeed-src", metavar="DIR", help="checkout of MindSpeed or MindSpeed-MM, only read")
        command.add_argument("--out", metavar="DIR", help="folder for the files written")
        command.add_argument("--json", action="store_true", help="print JSON")
    commands.choices["time"].add_argument("--trace", action="store_true",
                                          help="write KERNEL.trace.json of one core to --out (opens in Perfetto)")
    run = commands.choices["run"]
    run.add_argument("--regime", default="random", help="input values: random or repeated (one key)")
    run.add_argument("--seed", type=int, default=0, help="of the input values, default %(default)s")
    commands.choices["report"].add_argument("--workers", type=int, default=2, help="processes, default %(default)s")
    return parser


def _plan(options, data: bool = False):
    from . import plans

    return plans.make(options.op, plans.Shape.parse(options.shape), options.dtype, cu_seqlens=_offsets(options.varlen),
                      target=options.target, data=data, regime=getattr(options, "regime", "random"),
                      seed=getattr(options, "seed", 0), mindspeed_src=options.mindspeed_src)


def _offsets(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise NpusimError(f"--varlen {text}: wanted integers, for example 0,100,356") from None


def _options(options) -> dict:
    """`--option multibuffer=False --option set_workspace_multibuffer=2` as values of their types."""
    chosen = {}
    for text in options.option:
        name, equals, value = text.partition("=")
        if not equals:
            raise NpusimError(f"--option {text}: wanted NAME=VALUE")
        try:
            chosen[name] = {"true": True, "false": False}.get(value.lower(), value)
            chosen[name] = int(value)
        except ValueError:
            pass
    return chosen


def _compiled(options, data: bool = False):
    from .compile import compile_launch

    plan = _plan(options, data)
    return plan, [compile_launch(launch, options.target, _options(options)) for launch in plan.launches]


def _out(options, wanted_by: str) -> Path:
    if options.out is None:
        raise NpusimError(f"{wanted_by} needs --out DIR")
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _file_names(compiled) -> list[str]:
    """One stem per launch, numbered from the second use of a name on."""
    seen: dict[str, int] = {}
    for one in compiled:
        seen[one.name] = seen.get(one.name, 0) + 1
        yield one.name if seen[one.name] == 1 else f"{one.name}-{seen[one.name]}"


def compile_command(options) -> int:
    """Write the programs and how they are launched."""
    folder = _out(options, "compile")
    plan, compiled = _compiled(options)
    launches = []
    for stem, one in zip(_file_names(compiled), compiled, strict=True):
        (folder / f"{stem}.hivm.mlir").write_text(one.hivm)
        launches.append(_launch_record(one, f"{stem}.hivm.mlir"))
    record = {"op": plan.op, "shape": str(plan.shape), "dtype": plan.dtype, "target": options.target,
              "launches": launches}
    (folder / "launch.json").write_text(json.dumps(record, indent=2) + "\n")
    if options.json:
        print(json.dumps(record))
    else:
        for entry in launches:
            print(f"{entry['name']}: {folder / entry['file']}, grid {tuple(entry['grid'])}")
            for message in entry["messages"]:
                print(f"  compiler: {message}")
    return 0


def _launch_record(one, file: str) -> dict:
    arguments = [{"name": a.name, "kind": a.kind, "dtype": a.dtype,
                  **({"shape": list(a.value.shape), "strides": list(a.value.stride())} if a.kind == "tensor"
                     else {"value": a.value})} for a in one.args]
    return {"name": one.name, "kernel": one.kernel, "file": file, "grid": list(one.grid), "arguments": arguments,
            "scalars": [{"name": a.name, "dtype": a.dtype, "value": a.value} for a in one.scalars],
            "constants": {name: _plain(value) for name, value in one.constants.items()},
            "options": {name: _plain(value) for name, value in one.options.items()}, "messages": list(one.messages)}


def _plain(value):
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def resources_command(options) -> int:
    """Print what each program needs."""
    from . import resources

    _, compiled = _compiled(options)
    measured = [(one.name, resources.measure(one)) for one in compiled]
    if options.json:
        print(json.dumps([{"name": name, **found.as_dict()} for name, found in measured]))
        return 0
    for name, found in measured:
        print(f"{name} ({found.core_type}, {options.target})")
        for memory, bits in found.used_bits.items():
            limit = found.limit_bits[memory]
            share = f" of {limit / 8192:.0f} ({bits / limit:.0%})" if limit else ""
            print(f"  {memory:4} {bits / 8192:8.1f} KiB{share}")
        print(f"  workspace {found.workspace_bytes} bytes in all, {found.workspace_bytes_per_block} a block")
        print(f"  vector cores: {found.split}")
        for core, counts in found.per_task.items():
            print(f"  {core} per task: " + ", ".join(f"{key} {n}" for key, n in counts.as_dict().items() if n))
        for message in found.messages:
            print(f"  compiler: {message}")
    return 0


def run_command(options) -> int:
    """Execute the compiled launches in order and compare with the reference."""
    plan, compiled = _compiled(options, data=True)
    from . import check

    outcome = check.run(plan, compiled, options.target)
    if options.json:
        print(json.dumps(outcome.as_dict()))
    else:
        print(outcome.text())
    return 0 if outcome.sound else 1


def time_command(options) -> int:
    """Estimate each launch."""
    from . import timing

    plan, compiled = _compiled(options)
    folder = _out(options, "--trace") if options.trace else None
    estimated = timing.estimate_plan(plan, compiled, options.target, trace=options.trace)
    if folder is not None:
        for stem, (_, timing_of_one) in zip(_file_names(compiled), estimated.kernels, strict=True):
            (folder / f"{stem}.trace.json").write_text(json.dumps({"traceEvents": timing_of_one.trace}))
    print(json.dumps(estimated.as_dict()) if options.json else estimated.text())
    return 0


def report_command(options) -> int:
    """Table and plot over the standard shapes."""
    from . import report

    built = report.build(options.dtype, options.target, options.mindspeed_src, options.workers, _options(options),
                         fused=options.op)
    if options.out is not None:
        report.write(built, _out(options, "report"))
    print(json.dumps(built) if options.json else report.markdown(built))
    return 0


COMMANDS = {"compile": compile_command, "resources": resources_command, "run": run_command, "time": time_command,
            "report": report_command}
