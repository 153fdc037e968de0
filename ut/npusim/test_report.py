"""`python -m npusim report`: the table and its files, on two of the standard shapes."""
from __future__ import annotations

import pytest
import torch

from npusim import report
from npusim.isolate import call
from npusim.plans import STANDARD_SHAPES, Shape


def test_report_covers_each_shape_and_writes_four_files(tmp_path):
    shapes = (Shape(1, 2048, 4, 4, 128), Shape(1, 4096, 4, 4, 128))
    built = call(report.build, "bf16", "Ascend910B2", None, 1, {}, shapes)
    assert [row["shape"] for row in built["rows"]] == [str(shape) for shape in shapes]
    for row in built["rows"]:
        assert row["ratio"] == pytest.approx(row["unfused_us"] / row["fused_us"]) and row["ratio"] > 1
        assert row["fused_ns_per_chunk_head"] == pytest.approx(row["fused_us"] * 1e3 / row["chunk_heads"])
        assert 0 < row["hbm_floor_us"] < row["fused_us"]
    for file in report.write(built, tmp_path):
        assert file.stat().st_size > 100
    assert report.markdown(built).count("\n| 1, ") == len(shapes)
    assert "Estimated by npusim" in report.markdown(built)


def test_a_row_relates_times_to_chunks_and_to_the_memory_floor():
    row = report._row(Shape(1, 128, 2, 2, 128), {"fused": 10.0, "unfused": 40.0, "upstream": 50.0}, "bf16", 1e12)
    assert (row["ratio"], row["upstream_ratio"], row["chunk_heads"]) == (4, 5, 4)
    assert row["fused_ns_per_chunk_head"] == 2500
    assert row["hbm_floor_us"] == pytest.approx(128 * 2 * (256 + 4 + 2 + 128) / 1e12 * 1e6)
    assert row["fused_share_of_floor"] == pytest.approx(row["hbm_floor_us"] / 10)
    table = report.markdown({"rows": [row], "calibration": [], "target": "Ascend910B2", "dtype": "bf16",
                             "hbm_bytes_per_s": 1e12})
    assert "| 1, 128, 2, 2, 128 | 10.0 | 40.0 | 4.00 | 2500.0 | 10000.0 | 0.1 | 1% | 50.0 | 5.00 |" in table


def test_the_standard_shapes_are_those_every_table_shows():
    assert len(STANDARD_SHAPES) == 13 and all(shape.H == shape.HV and shape.K == 128 for shape in STANDARD_SHAPES)
    assert Shape(1, 16384, 8, 8, 128).chunk_heads == 2048
    assert Shape(1, 64, 1, 1, 128).hbm_bytes(torch.bfloat16) == 64 * (256 + 4 + 2 + 128)
