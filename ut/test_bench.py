"""The benchmark's arithmetic and command line, without a device. Its clocks need one and are exercised there."""
from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from mindspeed_kkt_plugin import bench, bench_clock
from mindspeed_kkt_plugin.bench_clock import Times


@pytest.fixture
def results():
    times = {"fused": Times(10.0, 9.0, 12.0), "FLA fused": Times(20.0, 19.0, 30.0)}
    slower = {"fused": Times(10.0, 9.0, 12.0), "FLA fused": Times(80.0, 79.0, 90.0)}
    return {(1, 64, 1, 128): {"graph": times}, (1, 128, 1, 128): {"graph": slower}}


def test_means_are_geometric_over_shapes(results):
    assert bench.geometric_means(results, "graph") == {"FLA fused": pytest.approx(4.0)}


def test_table_names_the_spread_and_the_ratio(results):
    assert bench.rows_of(results, "graph")[1] == ["1x128x1x128", "10.0 (9.0-12.0)", "80.0 (79.0-90.0)  8.00x"]


def test_times_need_a_sample():
    assert Times.of([3.0, 1.0, 2.0]) == Times(2.0, 1.0, 3.0)
    with pytest.raises(RuntimeError, match="no sample"):
        Times.of([])


def test_rotation_exceeds_the_cache_with_different_inputs():
    shape = (1, 2048, 4, 128)
    assert bench.traffic(shape, torch.bfloat16) == 2048 * 4 * (128 * 2 + 64 * 2 + 8)
    assert bench_clock.sets_needed(10**9) == 3
    assert bench_clock.sets_needed(1) == 40
    sets = bench.rotation((1, 256, 1, 16), torch.float32, "cpu")
    assert not torch.equal(sets[0][0], sets[1][0])
    assert torch.equal(sets[0][1].roll(64, 1), sets[1][1])


def test_profiler_table_is_summed_per_step(tmp_path):
    table = tmp_path / "kernel_details.csv"
    table.write_text("Step Id,Name,Duration(us)\n1,kkt,10.5\n1,solve,20\n2,kkt,11\n")
    assert bench_clock.step_durations(table) == [30.5, 11.0]
    table.write_text("Name,Duration(us)\nkkt,1\n")
    with pytest.raises(RuntimeError, match="no column Step Id"):
        bench_clock.step_durations(table)


@pytest.mark.parametrize("shape", ["1,2", "1,64,x,128", "0,64,1,128"])
def test_a_bad_shape_is_named(shape, capsys):
    with pytest.raises(SystemExit):
        bench.parse(["--device", "cuda", "--shape", shape])
    assert shape.split(",")[-1] in capsys.readouterr().err


def test_a_missing_device_is_one_clear_line():
    if torch.cuda.is_available():
        pytest.skip("needs a machine without CUDA")
    run = subprocess.run([sys.executable, "-m", "mindspeed_kkt_plugin.bench", "--device", "cuda"],
                         capture_output=True, text=True)
    assert run.returncode != 0 and run.stderr.strip() == "--device cuda: no such device can be used here"


def test_report_is_plain_data_and_says_measured(results, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    monkeypatch.setattr(bench, "CLOCKS", {"cuda": {"graph": None}})
    report = json.loads(json.dumps(bench.report(results, "cuda", "bf16")))
    assert report["kind"] == "measured" and report["device"] == "a card"
    assert report["shapes"][0]["times"]["graph"]["fused"]["median_us"] == 10.0
    bench.plot(results, "graph", tmp_path / "plot.png", "title")
    assert (tmp_path / "plot.png").stat().st_size > 1000
