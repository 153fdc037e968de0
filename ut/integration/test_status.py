"""`status()` and `python -m mindspeed_kkt_plugin.status`: one name for a function and a module, and what they tell."""
from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mindspeed_kkt_plugin
from mindspeed_kkt_plugin import integration
from mindspeed_kkt_plugin.integration.consumers import CONSUMERS
from ut.integration.conftest import STANDIN

REPOSITORY = Path(__file__).parents[2]


def _rows(found):
    return {row["id"]: row for row in found["consumers"]}


@pytest.mark.parametrize("how", ["import_module", "import-as", "from-import"])
def test_status_stays_a_function_when_the_module_of_that_name_is_imported(how):
    function = mindspeed_kkt_plugin.status
    sys.modules.pop("mindspeed_kkt_plugin.status", None)
    if how == "import_module":
        got = importlib.import_module("mindspeed_kkt_plugin.status")
    elif how == "import-as":
        import mindspeed_kkt_plugin.status as got
    else:
        from mindspeed_kkt_plugin import status as got
    assert got is function is mindspeed_kkt_plugin.status
    assert set(got()) >= {"versions", "paths", "last", "consumers"}


def test_command_finds_usable_consumers_on_disk_without_importing_them(tmp_path):
    """In a checkout where M1 uses A between the two calls, and with MindSpeed-MM's M3 gone."""
    for package in ("mindspeed_llm", "mindspeed_mm"):
        shutil.copytree(STANDIN / package, tmp_path / package)
    (tmp_path / "mindspeed_llm" / "__init__.py").write_text("raise SystemExit('was imported')")
    gdn = tmp_path / "mindspeed_mm" / "fsdp" / "ops" / "gdn"
    (gdn / "flash_gated_delta_rule.py").unlink()
    m1 = gdn / "chunk_gated_delta_rule.py"
    m1.write_text(m1.read_text().replace("    A = solve_tril", "    print(A)\n    A = solve_tril"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}
    ran = subprocess.run([sys.executable, "-m", "mindspeed_kkt_plugin.status", "--json"], env=environment,
                         cwd=tmp_path, capture_output=True, text=True, timeout=60)
    rows = _rows(json.loads(ran.stdout))
    assert {name: row["state"] for name, row in rows.items()} == {
        "L1": "found", "L2": "found", "M1": "left alone", "M2": "found", "M3": "absent"}
    assert "uses the value of chunk_scaled_dot_kkt_fwd" in rows["M1"]["detail"]


def test_command_prints_versions_paths_consumers_and_last_call(capsys, monkeypatch):
    import runpy

    monkeypatch.setattr(sys, "argv", ["status"])
    monkeypatch.delitem(sys.modules, "mindspeed_kkt_plugin.status", raising=False)
    with pytest.raises(SystemExit) as exit_:
        runpy.run_module("mindspeed_kkt_plugin.status", run_name="__main__")
    text = capsys.readouterr().out
    assert exit_.value.code == 0
    for expected in ("torch ", "triton-ascend", "mindspeed_llm", "paths, in order of choice", "last call",
                     *(consumer.target for consumer in CONSUMERS)):
        assert expected in text


def test_states_from_waiting_to_active_and_back(stack):
    assert stack.state("L1") == "found"
    integration.install_direct()
    assert stack.state("L1") == "waiting" and CONSUMERS[0].module in stack.detail("L1")
    stack.load("L1")
    assert stack.state("L1") == "active"
    integration.uninstall()
    assert stack.state("L1") == "found"



def test_importing_the_package_imports_neither_triton_nor_mindspeed():
    code = ("import sys, mindspeed_kkt_plugin\n"
            "bad = [n for n in sys.modules if n.split('.')[0] in ('triton', 'torch_npu', 'mindspeed')]\n"
            "sys.exit(f'imported {bad}' if bad else 0)")
    ran = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60,
                         env=os.environ | {"PYTHONPATH": str(STANDIN)})
    assert ran.returncode == 0, ran.stderr
