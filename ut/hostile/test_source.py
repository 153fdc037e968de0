"""Published failures that a reading of the source rules out (parts of T.., R.. and A.. of cases.md), and imports."""
from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "mindspeed_kkt_plugin"
KERNELS = sorted((PACKAGE / "kernels").glob("*.py"))
SOURCES = sorted(PACKAGE.rglob("*.py"))


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """Every call of a dotted name in the file."""
    return [(ast.unparse(node.func), node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call)]


def of(name: str) -> list[tuple[Path, ast.Call]]:
    return [(path, node) for path in KERNELS for called, node in calls(path) if called == name]


def test_the_reading_sees_the_kernels():
    assert len(of("tl.load")) > 10 and len(of("tl.store")) > 5 and len(of("tl.dot")) > 5


@pytest.mark.parametrize("path", [p for p in SOURCES if "bench" not in p.name], ids=lambda p: p.name)
def test_T10_R03_R06_R07_A12_nothing_is_tuned_at_run_time(path):
    """Each kernel has one configuration, so no race of configurations and no tuning when memory is full."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"autotune", "heuristics", "Config", "do_bench"}


def test_A03_every_masked_load_says_what_it_reads_elsewhere():
    for path, node in of("tl.load"):
        given = {keyword.arg for keyword in node.keywords}
        assert "mask" not in given or "other" in given, f"{path.name}:{node.lineno}"
        assert len(node.args) == 1, f"{path.name}:{node.lineno}: mask and other are passed by name"


@pytest.mark.parametrize("name", ["tl.make_block_ptr", "tl.advance", "tl.make_tensor_descriptor"])
def test_A05_no_block_pointer_whose_boundary_check_could_be_lowered_wrongly(name):
    assert not of(name)


def test_R13_products_say_their_precision_and_the_package_reads_its_own_variables_only():
    for path, node in of("tl.dot"):
        assert "input_precision" in {keyword.arg for keyword in node.keywords}, f"{path.name}:{node.lineno}"
    used = set()
    for path in KERNELS + [PACKAGE / f"{name}.py" for name in ("op", "checks", "paths", "varlen", "unfused")]:
        used |= set(re.findall(r"environ(?:\.get)?[\[(]\"(\w+)\"", path.read_text(encoding="utf-8")))
    assert used == {"MINDSPEED_KKT_CHECK", "MINDSPEED_KKT_PATH"}


def test_R09_lengths_are_never_constants():
    for path in KERNELS:
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                for argument in function.args.args:
                    constant = argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)
                    assert not (constant and argument.arg in {"T", "NT", "TASKS", "BATCHES", "num_tasks"})


ABSENT = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "triton":
            raise {error}
sys.meta_path.insert(0, Hide())
import torch, mindspeed_kkt_plugin as plugin
assert not torch.cuda.is_initialized()
assert plugin.chunk_gated_delta_rule_fwd_kkt_solve(torch.ones(1, 20, 1, 4), chunk_size=16)[0, 1, 0, 0] == -4
print(plugin.status()["last"]["why"])
"""


@pytest.mark.parametrize("error", ["ModuleNotFoundError('No module named triton')", "ImportError('libascend.so')",
                                   "RuntimeError('0 active drivers')", "OSError('cannot open shared object')"])
def test_A11_A14_importing_needs_no_working_triton_and_the_call_names_the_cause(error):
    run = subprocess.run([sys.executable, "-c", ABSENT.format(error=error)], capture_output=True, text=True,
                         env={"PATH": "", "PYTHONPATH": ":".join(sys.path)}, timeout=120)
    assert run.returncode == 0, run.stderr
    assert error.split("'")[1] in run.stdout
