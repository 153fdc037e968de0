"""`python -m patches` on checkouts: one commit that holds all, twice is once, and clear refusals.

Stand-ins of our own by default; the real ones where MINDSPEED_SRC, MINDSPEED_LLM_SRC and MINDSPEED_MM_SRC name them.
"""
from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from mindspeed_kkt_plugin.integration.consumers import CONSUMERS
from patches import cli, lists, message, operator, sites, targets
from patches.errors import PatchError
from ut.patches import upstream

GIT_TARGETS = sorted(upstream.FILES)
REAL = {"mindspeed": "MINDSPEED_SRC", "mindspeed-llm": "MINDSPEED_LLM_SRC", "mindspeed-mm": "MINDSPEED_MM_SRC"}


@pytest.fixture(params=GIT_TARGETS)
def checkout(request, tmp_path) -> tuple[str, Path]:
    return request.param, upstream.make(request.param, tmp_path / "tree")


def test_branch_holds_everything_in_one_commit(checkout, capsys):
    name, tree = checkout
    assert cli.main([name, "--tree", str(tree), "--branch", "pr"]) == 0
    assert "files changed" in capsys.readouterr().out
    assert upstream.git(tree, "status", "--porcelain") == ""
    assert upstream.git(tree, "rev-list", "--count", "master..pr").strip() == "1"
    log = upstream.git(tree, "log", "-1", "--format=%B")
    assert log.startswith("feat(triton): ") and all(question in log for question in message.QUESTIONS)
    for path in upstream.git(tree, "diff", "--name-only", "master").split():
        if path.endswith(".py"):
            ast.parse((tree / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("branch", [["--branch", "pr"], []], ids=["committed", "not committed"])
def test_twice_is_once(checkout, branch, capsys):
    name, tree = checkout
    assert cli.main([name, "--tree", str(tree), *branch]) == 0
    capsys.readouterr()
    assert cli.main([name, "--tree", str(tree), *branch]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_check_writes_nothing(checkout, capsys):
    name, tree = checkout
    assert cli.main([name, "--tree", str(tree), "--check"]) == 0
    assert "would change" in capsys.readouterr().out
    assert upstream.git(tree, "status", "--porcelain") == ""


def test_a_tree_with_other_changes_is_refused(checkout, capsys):
    name, tree = checkout
    (tree / "scratch.txt").write_text("x")
    assert cli.main([name, "--tree", str(tree)]) == 1
    assert "scratch.txt" in capsys.readouterr().err
    assert upstream.git(tree, "status", "--porcelain").split() == ["??", "scratch.txt"]


def test_another_repository_is_refused(tmp_path, capsys):
    tree = upstream.make("mindspeed-mm", tmp_path / "tree")
    assert cli.main(["mindspeed-llm", "--tree", str(tree)]) == 1
    assert "not a checkout of mindspeed-llm" in capsys.readouterr().err


RENAMED = {
    "kkt renamed": ("chunk_scaled_dot_kkt_fwd(", "scaled_kkt(", "chunk_scaled_dot_kkt_fwd is not called exactly once"),
    "forward renamed": ("def chunk_gated_delta_rule_fwd(", "def fwd(", "defines chunk_gated_delta_rule_fwd 0 times"),
    "A used between": ("    A = solve_tril(", "    print(A)\n    A = solve_tril(", "other than solve_tril"),
    "positional": ("k=k, g=g,", "k, g=g,", "positional"),
}


@pytest.mark.parametrize("case", sorted(RENAMED))
def test_a_site_that_changed_is_refused_by_name(case, tmp_path, capsys):
    old, new, words = RENAMED[case]
    tree = upstream.make("mindspeed-llm", tmp_path / "tree")
    file = tree / upstream.LLM / "chunk_gated_delta_rule.py"
    file.write_text(file.read_text().replace(old, new))
    upstream.git(tree, "commit", "-qam", "changed upstream")
    assert cli.main(["mindspeed-llm", "--tree", str(tree), "--check"]) == 1
    said = capsys.readouterr().err
    assert words in said and "chunk_gated_delta_rule.py" in said


def test_a_missing_list_is_refused():
    with pytest.raises(PatchError, match="add_fusions_features"):
        lists.add_feature("x = 1\n", "f.py", "add_fusions_features", "A", "m")
    with pytest.raises(PatchError, match="place is not known"):
        lists.add_after("text\n", "m.md", "(./x.md)", "- y")


@pytest.mark.parametrize("consumer", CONSUMERS, ids=lambda consumer: consumer.id)
@pytest.mark.parametrize("takes", [True, False], ids=["taken", "not taken"])
def test_an_edited_forward_passes_its_own_arguments(consumer, takes):
    name = {"mindspeed_llm": "mindspeed-llm", "mindspeed_mm": "mindspeed-mm"}[consumer.package]
    calls = []
    source = upstream.FILES[name][sites.path_of(consumer)]
    module = _run(sites.edit(source, consumer, "fused_of_the_test"), takes, calls)
    k = torch.zeros((1, 2, 5, 4) if consumer.head_first_k else (1, 5, 2, 4), dtype=torch.bfloat16)
    g, beta, cu_seqlens = torch.zeros(1, 5, 2), torch.ones(1, 5, 2), torch.tensor([0, 5])
    A = module[consumer.function](None, k, None, g, beta, cu_seqlens, 32)
    assert A.shape == ((1, 2, 5, 32) if consumer.head_first_A else (1, 5, 2, 32))
    names = [name for name, _ in calls]
    if not takes:
        assert names == ["takes", "kkt", "solve"]
        assert calls[1][1].keys() == {"k", "g", "beta", "cu_seqlens", "chunk_size", "output_dtype"}
        return
    assert names == ["takes", "fused"] and calls[0][1] == calls[1][1]
    given = calls[1][1]
    assert given["k"] is k and given["cu_seqlens"] is cu_seqlens
    assert (given["chunk_size"], given["output_dtype"]) == (32, torch.bfloat16)
    assert given["g"].shape == ((1, 2, 5) if consumer.head_first_k else (1, 5, 2))
    assert given.get("output_head_first", False) == consumer.head_first_A


def _run(source: str, takes: bool, calls: list) -> dict:
    """The module's names after running it, with recording operators in place of upstream's and of the fused one."""
    def record(name, result):
        def call(**given):
            calls.append((name, given))
            return result(given)
        return call

    def shape(given):
        return torch.zeros(1, 5, 2, given["chunk_size"])

    def fused(given):
        return shape(given).transpose(1, 2).contiguous() if given.get("output_head_first") else shape(given)

    solve = record("solve", lambda given: given["A"])
    modules = {
        upstream.PAIR: {"chunk_scaled_dot_kkt_fwd": record("kkt", shape), "solve_tril": solve},
        "fused_of_the_test": {sites.FUSED: record("fused", fused), sites.TAKES: record("takes", lambda _: takes)},
    }
    try:
        for module, names in modules.items():
            sys.modules[module] = types.ModuleType(module)
            vars(sys.modules[module]).update(names)
        found = {}
        exec(compile(source, "forward.py", "exec"), found)
        return found
    finally:
        for module in modules:
            sys.modules.pop(module, None)


def test_upstream_operator_is_whole_and_knows_no_plugin(tmp_path):
    assert cli.main(["mindspeed-ops", "--tree", str(tmp_path)]) == 0
    texts = {file: file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.py")}
    assert len(texts) > 10
    for file, text in texts.items():
        code = [line for line in text.splitlines() if "mindspeed_kkt_plugin" in line]
        assert not code or file.name == "version.py", f"{file.name} still says {code}"
    program = ("import torch; from mindspeed_ops.api.triton.kkt_solve import *; "
               "from mindspeed_ops.api.triton.kkt_solve import paths; k = torch.randn(1, 70, 2, 32); "
               "print(chunk_gated_delta_rule_fwd_kkt_solve(k).shape, "
               "[p.name for p in paths.PATHS], fused_kkt_solve_takes(k), paths.status()['last']['path'])")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[0] == "torch.Size([1, 70, 2, 64]) ['ascend', 'torch'] False torch", done.stderr


def test_a_module_is_cut_to_what_is_needed():
    text = "import os\nA = 1\n# about b\ndef b():\n    return A\n\n\ndef c():\n    return 2\n"
    assert operator.only(text, {"b"}) == "import os\nA = 1\n# about b\ndef b():\n    return A\n\n\n"
    assert operator.only(text, {"c"}) == "import os\n\n\ndef c():\n    return 2\n"


def _patched(name: str, folder: Path) -> tuple[Path, Path]:
    """The checkout that the environment names, and a patched copy of it; nothing is touched there."""
    source = os.environ.get(REAL[name])
    if not source:
        pytest.skip(f"{REAL[name]} names no checkout of {name}")
    tree = folder / name
    if not tree.exists():
        shutil.copytree(source, tree, ignore=shutil.ignore_patterns(".git"))
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
            upstream.git(tree, *command)
        assert cli.main([name, "--tree", str(tree), "--check"]) == 0
        assert cli.main([name, "--tree", str(tree)]) == 0
    return Path(source), tree


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REAL))
def test_new_files_pass_the_real_checkouts_own_lint(name, tmp_path):
    source, tree = _patched(name, tmp_path)
    changed = targets.TARGETS[name].changes(cli.tree.Tree.open(tree, targets.TARGETS[name]))
    new = [path for path in changed if path.endswith(".py") and not (source / path).exists()]
    assert new
    for command in (["check", operator.RULES], ["format", "--check"]):
        lint = subprocess.run([sys.executable, "-m", "ruff", *command, "--config", "pre-commit/pyproject.toml", *new],
                              cwd=tree, capture_output=True, text=True)
        assert lint.returncode == 0, lint.stdout


@pytest.fixture(scope="module")
def patched_trees(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("trees")
    return {REAL[name]: str(_patched(name, folder)[1]) for name in sorted(REAL)}


@pytest.mark.slow
@pytest.mark.parametrize("packed", [[], ["packed"]], ids=["fixed", "packed"])
@pytest.mark.parametrize("consumer", [consumer.id for consumer in CONSUMERS])
def test_real_forward_is_bit_equal_with_and_without_the_switch(consumer, packed, patched_trees):
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"} | patched_trees | {
        "TRAINING_BACKEND": "mindspeed_fsdp", "NON_MEGATRON": "true",
        "PYTHONPATH": os.pathsep.join([str(operator.PLUGIN.parent), *patched_trees.values()])}
    ran = subprocess.run([sys.executable, "-m", "ut.patches.real_forward", consumer, *packed], env=environment,
                         capture_output=True, text=True, timeout=300)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, ran.stdout[-1000:] + ran.stderr[-3000:]
    assert json.loads(lines[0].removeprefix("RESULT ")) == {
        "calls_off": [1, 1], "calls_on": [0, 0], "equal": {"o": True, "state": True, "A": True}}
