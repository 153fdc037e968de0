"""The demo: what it reports, that it can fail, and that its chunked attention is the layer's own."""
from __future__ import annotations

import json

import pytest
import torch

pytest.importorskip("transformers", reason="the demo needs transformers (pip install -r requirements-dev.txt)")
from mindspeed_kkt_plugin import demo, reference  # noqa: E402
from mindspeed_kkt_plugin.demo_layer import Layer, chunked_attention, text_bytes  # noqa: E402


def test_json_report_of_a_short_run(device, tmp_path, capsys):
    code = demo.main(["--device", device, "--seq-len", "70", "--out", str(tmp_path), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 0 and report["ok"]
    assert [entry["what"] for entry in report["comparisons"]] == [
        f"{what}, {name}" for name in ("fp32", "bf16")
        for what in ("fused against float64", "two calls against float64", "layer output against transformers")]
    assert all(0 < entry["worst"] <= entry["bound"] for entry in report["comparisons"])
    assert report["k"] == [1, 70, 2, 128] and report["value_heads"] == 4
    assert report["path"]["path"] == {"npu": "ascend"}.get(device, "portable")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_a_missed_bound_is_an_error(device, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "FP32_BOUND", 1e-12)
    code = demo.main(["--device", device, "--seq-len", "64", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert code == 1 and "bound was missed" in printed and "NO" in printed


def test_sequence_length_must_be_positive(capsys):
    with pytest.raises(SystemExit) as caught:
        demo.main(["--seq-len", "0"])
    assert caught.value.code == 2 and "--seq-len is 0" in capsys.readouterr().err


@pytest.mark.parametrize("length", [1, 64, 100])
def test_chunked_attention_with_the_exact_inverse_is_the_layers(length):
    layer = Layer(torch.device("cpu"), key_heads=1)
    own, seen = layer.run(text_bytes(length))
    truth = reference.kkt_solve(seen.k, seen.g, seen.beta)
    output, again = layer.run(text_bytes(length), lambda x: chunked_attention(x, truth))
    assert torch.equal(seen.k, again.k) and torch.equal(seen.g, again.g)
    assert ((output - own).norm() / own.norm()) < 2e-6
    wrong, _ = layer.run(text_bytes(length), lambda x: chunked_attention(x, truth.flip(1)))
    assert length == 1 or ((wrong - own).norm() / own.norm()) > 1e-3, "the given attention was not used"
