"""A few drawn calls, the same ones every time. `make fuzz` draws new ones for ten minutes."""
from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from ut.hostile import fuzz
from ut.hostile.properties import bad_call_is_refused, good_call_is_right
from ut.hostile.strategies import broken, calls

FIXED = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@settings(FIXED, max_examples=40)
@given(drawn=calls())
def test_good_calls_are_right(device, drawn):
    good_call_is_right(drawn, device)


@pytest.fixture
def on_cpu(device):
    if device != "cpu":
        pytest.skip(f"`make fuzz` and its broken values are for the CPU; on {device} good calls are drawn")


@settings(FIXED, max_examples=100)
@given(case=broken())
def test_bad_calls_are_refused(on_cpu, case):
    bad_call_is_refused(*case)


def test_the_fuzzer_stops_in_time_counts_and_finds_a_fault(on_cpu, monkeypatch, capsys):
    assert fuzz.run(seconds=2) == 0
    assert "examples" in capsys.readouterr().out

    def wrong(drawn, device="cpu"):
        assert drawn.K != 64

    monkeypatch.setattr(fuzz, "good_call_is_right", wrong)
    with pytest.raises(AssertionError):
        fuzz.run(seconds=60)
    assert "K=64" in capsys.readouterr().out
