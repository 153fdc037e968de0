"""`torchrun -m mindspeed_kkt_plugin.run` with two gloo processes: each rank's result is its slice of the whole."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ut.integration.conftest import STANDIN

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ran():
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(STANDIN), str(REPOSITORY)]), "OMP_NUM_THREADS": "1",
        "TRAINING_BACKEND": "mindspeed_fsdp", "TRITON_INTERPRET": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
               "-m", "mindspeed_kkt_plugin.run", "ut/integration/two_ranks.py", "config.yaml"]
    process = subprocess.Popen(command, env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the ranks too
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture(scope="module")
def ranks(ran):
    found = [json.loads(line.removeprefix("RESULT ")) for line in ran.stdout.splitlines() if line.startswith("RESULT")]
    assert len(found) == 2, ran.stderr
    return sorted(found, key=lambda rank: rank["rank"])


def test_launcher_on_fsdp2_is_itself_the_switch_on_every_rank(ran, ranks):
    assert [rank["fused"] for rank in ranks] == ["L1", "L1"]
    assert [rank["argv"] for rank in ranks] == [["config.yaml"]] * 2
    assert ran.stdout.count("active for: L1") == 1, "only rank 0 prints"


@pytest.mark.parametrize("split", ["heads", "rows"])
@pytest.mark.parametrize("packed", ["fixed", "packed"])
def test_V16_each_ranks_result_is_its_slice_of_the_whole(split, packed, ranks):
    assert [rank[packed][split] for rank in ranks] == [True, True]


@pytest.mark.parametrize("split", ["heads", "rows"])
@pytest.mark.parametrize("packed", ["fixed", "packed"])
def test_gathered_slices_are_the_whole(split, packed, ranks):
    assert [rank[packed][f"{split}_gathered"] for rank in ranks] == [True, True]
