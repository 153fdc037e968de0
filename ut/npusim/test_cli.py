"""`python -m npusim`: files, JSON and exit codes of its commands."""
from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from npusim import cli
from npusim.isolate import call

SMALL = ["--shape", "1,128,2,2,64"]


def outcome(*arguments: str) -> tuple[int, str, str]:
    """Exit code and both outputs of the command line, run inside the worker."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main(list(arguments))
    return code, out.getvalue(), err.getvalue()


def npusim(*arguments: str):
    code, out, err = call(outcome, *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


def test_compile_writes_every_program_and_how_to_launch_it(tmp_path):
    code, printed = npusim("compile", "--op", "unfused", "--out", str(tmp_path), *SMALL)
    stored = json.loads((tmp_path / "launch.json").read_text())
    assert code == 0 and printed == stored
    assert (stored["op"], stored["shape"], stored["dtype"]) == ("unfused", SMALL[1], "bf16")
    assert len(stored["launches"]) >= 2
    for launch in stored["launches"]:
        text = (tmp_path / launch["file"]).read_text()
        assert f"@{launch['kernel']}" in text and "hivm.hir" in text
        assert [one["name"] for one in launch["scalars"]] == [
            one["name"] for one in launch["arguments"] if one["kind"] == "scalar"]
        assert len(launch["grid"]) == 3 and "constants" in launch
    assert {"name": "T", "dtype": "i32", "value": 128} in stored["launches"][0]["scalars"]


def test_names_used_twice_get_files_of_their_own():
    class Named:
        def __init__(self, name):
            self.name = name

    assert list(cli._file_names([Named("a"), Named("b"), Named("a")])) == ["a", "b", "a-2"]


def test_resources_are_listed_per_kernel():
    code, kernels = npusim("resources", "--op", "unfused", *SMALL)
    assert code == 0
    for kernel in kernels:
        assert all(bits <= kernel["limit_bits"][memory] for memory, bits in kernel["used_bits"].items())
        assert kernel["split"] in ("shared", "partly shared", "repeated", "one block each", "none")


def test_time_prints_estimates_that_add_up(tmp_path):
    code, found = npusim("time", "--op", "unfused", "--trace", "--out", str(tmp_path), *SMALL)
    assert code == 0 and (found["op"], found["shape"], found["kind"]) == ("unfused", SMALL[1], "estimated")
    assert found["total_us"] == pytest.approx(sum(kernel["us"] for kernel in found["kernels"]))
    assert all(kernel["us"] > 0 for kernel in found["kernels"])
    traces = [json.loads(path.read_text())["traceEvents"] for path in tmp_path.glob("*.trace.json")]
    assert len(traces) == sum(not kernel["name"].startswith("torch ") for kernel in found["kernels"])
    assert all({"name", "ph", "ts", "pid", "tid"} <= event.keys() for trace in traces for event in trace[:5])


def test_more_tokens_take_longer():
    few, many = (npusim("time", "--op", "unfused", "--shape", f"1,{tokens},2,2,64")[1] for tokens in (8192, 65536))
    assert many["total_us"] > 2 * few["total_us"]


def test_a_sound_program_ends_with_0():
    code, found = npusim("run", "--op", "unfused", "--shape", "1,70,2,2,64")
    assert code == 0 and found["sound"] and not found["findings"]
    assert 0 < found["error"] <= found["bound"]


def test_a_wrong_result_ends_with_1():
    code, out, _ = call(outcome, "run", "--op", "ut.npusim.truncated_plan", "--shape", "1,64,2,2,64")
    assert code == 1 and "ABOVE the bound" in out


def test_the_module_runs_where_the_interpreter_is_on(tmp_path):
    """As a process of its own, started like the suite itself with TRITON_INTERPRET=1."""
    command = [sys.executable, "-m", "npusim", "compile", "--op", "unfused", "--out", str(tmp_path), *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "launch.json").is_file()
