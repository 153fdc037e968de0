"""Documents hold: generated blocks are current, links lead somewhere, commands and options exist, examples run."""
from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

from docs import figure_blocks, figure_data, figures

ROOT = Path(figures.ROOT)
PAGES = figures.pages() + sorted(ROOT.glob("atk/*/README*.md"))
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.S)
CODE = re.compile(r"`([^`\n]+)`")


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    page = ROOT / name
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = [target for target in LINK.findall(text)
              if "://" not in target and not (page.parent / target.partition("#")[0]).exists()]
    assert not broken


def test_generated_blocks_are_current():
    assert [str(page.relative_to(ROOT)) for page in figures.stale()] == [], "run: make docs-figures"


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("block", sorted(figure_blocks.BLOCKS))
def test_blocks_can_be_written_without_any_data(block, lang, monkeypatch, tmp_path):
    (tmp_path / "published.csv").write_text("device,op,B,T,H,K,dtype,us,source\n")
    monkeypatch.setattr("docs.figure_data.DATA", tmp_path)
    assert figure_blocks.block(block, lang).strip()


def test_a_bench_file_is_read_and_scaled(monkeypatch, tmp_path):
    (tmp_path / "published.csv").write_text("device,op,B,T,H,K,dtype,us,source\n")
    times = {name: {"median_us": us, "min_us": us, "max_us": us} for name, us in (("fused", 25.0), ("FLA fused", 54.0))}
    bench = {"kind": "measured", "device": "NVIDIA H200", "torch": "2.11", "dtype": "bf16", "unit": "us",
             "shapes": [{"shape": [1, 16384, 8, 128], "times": {"graph": times}}],
             "geometric_mean": {"graph": {"FLA fused": 2.16}}}
    rows = [{"shape": "1,16384,8,8,128", "fused_us": 100.0, "unfused_us": 400.0, "ratio": 4.0, "hbm_floor_us": 34.0,
             "fused_ns_per_chunk_head": 49.0}]
    (tmp_path / "h200_bench.json").write_text(json.dumps(bench))
    (tmp_path / "npusim_910b2_bf16.json").write_text(
        json.dumps({"target": "Ascend910B2", "dtype": "bf16", "rows": rows, "calibration": []}))
    monkeypatch.setattr("docs.figure_data.DATA", tmp_path)
    assert "| 1, 16384, 8, 128 | 25.0 | 54.0 | 2.16 |" in figure_blocks.block("h200-table", "en")
    scaled = 54 * (132 * 1.98) / (108 * 1.41)
    expected = f"| 1, 16384, 8, 128 | 54.0 | {scaled:.0f} | {scaled / 0.7:.0f} | 100 | {scaled / 100:.2f} |"
    assert expected in figure_blocks.block("a100", "en")
    assert f"{scaled / 100:.2f} of its speed; 0.7 or more on 1 of 1 shapes" in figure_blocks.block("highlights", "en")


def bench_of(us: float, **fields) -> str:
    times = {name: {"median_us": value} for name, value in (("fused", us), ("FLA fused", 3 * us))}
    return json.dumps({"kind": "measured", "device": "H200", "torch": "2", "dtype": "bf16",
                       "shapes": [{"shape": [1, 64, 1, 128], "times": {"graph": times}}]} | fields)


def test_a_second_bench_file_or_one_of_another_dtype_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(figure_data, "DATA", tmp_path)
    (tmp_path / "h200_bench.json").write_text(bench_of(7.0))
    (tmp_path / "h200_bf16.json").write_text(bench_of(5.0))
    with pytest.raises(ValueError, match=r"h200_bf16\.json besides h200_bench\.json"):
        figure_data.h200_times()
    (tmp_path / "h200_bf16.json").unlink()
    (tmp_path / "h200_bench.json").write_text(bench_of(7.0, dtype="fp16"))
    with pytest.raises(ValueError, match="wanted measured, bf16"):
        figure_data.h200_times()


def test_the_cases_that_miss_atks_rule_are_named(monkeypatch, tmp_path):
    (tmp_path / "published.csv").write_text("device,op,B,T,H,K,dtype,us,source\n")
    (tmp_path / "atk_h200_accuracy.csv").write_text(
        "case,path,passed,reason,max_re_ratio,max_re_limit\na,portable,True,,0.9,1.25\nb,portable,False,x,1.8,1.25\n")
    monkeypatch.setattr(figure_data, "DATA", tmp_path)
    assert "1 of 2 within ATK's rule; not `b` |" in figure_blocks.block("status", "en")


@pytest.mark.parametrize("name", NAMES)
def test_no_estimate_is_called_measured_on_an_npu(name):
    text = (ROOT / name).read_text(encoding="utf-8").lower()
    claims = re.findall(r"[^.|\n]*measured on (?:an? )?(?:npu|910|ascend)[^.|\n]*", text)
    assert all(re.search(r"\b(no|not|nothing|never|none)\b", claim) for claim in claims), claims


def commands(text: str) -> list[str]:
    """Lines of shell blocks, and code spans in tables and sentences, comments and prompts removed."""
    lines = [line for kind, body in FENCE.findall(text) if kind in ("bash", "shell", "") for line in body.splitlines()]
    return [line.partition(" #")[0].strip() for line in lines + CODE.findall(FENCE.sub("", text))]


@functools.cache
def options_of(module: str) -> str:
    """Everything that a module's sources say, where its options must be declared."""
    top = ROOT / module.split(".")[0]
    return "".join(file.read_text(encoding="utf-8") for file in top.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for command in commands((ROOT / name).read_text(encoding="utf-8")):
        if command.startswith("make "):
            assert set(command.split()[1:]) <= set(targets), command
        if command.startswith("pytest "):
            paths = [word for word in command.split()[1:] if word.startswith("ut")]
            assert all((ROOT / path.partition("::")[0]).exists() for path in paths), command
        found = re.search(r"(?:^|\s)python -m ([\w.]+)(.*)", command)
        if found and found[1].split(".")[0] in ("mindspeed_kkt_plugin", "npusim", "patches", "docs"):
            assert importlib.util.find_spec(found[1]), command
            options = re.findall(r"(?<!\S)--[\w-]+", found[2])
            if not found[1].endswith(".run"):  # what follows is the training script's
                assert all(f'"{option}"' in options_of(found[1]) for option in options), command


@pytest.mark.parametrize("name", ["README.md", "README.zh.md", "docs/en/operator.md", "docs/zh/operator.md"])
def test_examples_run(name):
    examples = [body for kind, body in FENCE.findall((ROOT / name).read_text(encoding="utf-8"))
                if kind == "python" and "import torch" in body]
    assert len(examples) == 1
    names = {}
    exec(compile(examples[0], name, "exec"), names)
    assert names["A"].shape == (1, 256, 4, 64) and names["A"].dtype == torch.bfloat16


def test_interface_on_the_page_is_the_operators():
    import inspect

    from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve

    names = list(inspect.signature(chunk_gated_delta_rule_fwd_kkt_solve).parameters)
    for page in ("docs/en/operator.md", "docs/zh/operator.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        call = re.search(r"A = chunk_gated_delta_rule_fwd_kkt_solve\((k, g, beta, cu_seqlens.*?)\)", text, re.S)[1]
        assert [word.partition("=")[0].strip() for word in call.split(",")] == names


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_both_languages_have_the_pages(lang):
    assert {"operator.md", "design.md", "practice.md", "experience.md", "performance.md", "reproduce.md", "upstream.md",
            "integration.md", "npusim.md"} <= {page.name for page in (ROOT / "docs" / lang).glob("*.md")}


def test_numerics_tell_the_methods_apart():
    from docs import numerics

    low = numerics.lower("repeated_beta1")[:4]
    truth = numerics.substitution(low)
    assert numerics.worst(numerics.blocks_32(low.float()), truth) < 1e-5
    assert numerics.worst(numerics.squaring(low.float()), truth) > 1
    assert numerics.worst(numerics.squaring(low), truth) > numerics.worst(numerics.blocks_32(low), truth)


def test_a_trap_is_still_there():
    from npusim.isolate import call

    assert call(_nan_min_max) == ("2 min/max, 4 compare, 4 select", "2 min/max, 0 compare, 0 select")


def _nan_min_max() -> tuple[str, str]:
    trap = importlib.import_module("docs.traps.nan_min_max")
    return trap.bad(), trap.good()
