"""The benchmark of uneven batches on real ranks: three nodes of cluster A."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from started import ENVIRONMENT, LIVENESS_S, ended, wagma
from test_input import one_rank

pytestmark = [pytest.mark.training, pytest.mark.long]


def launched(folder: Path, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    return ended(folder, wagma(ranks, "bench", "heterogeneous", *options))


def test_cannikin_is_faster_than_an_even_split(tmp_path: Path) -> None:
    options = ("--cluster", "A", "--methods", "even,cannikin", "--epochs", "3", "--steps", "4")
    done = launched(tmp_path, 3, *options, "--step-time", "40ms", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "cluster A: 3 nodes, times per sample 1, 1.71, 3.16;" in done.stderr
    assert done.stdout.count("speed-up against the even split") == 1, "only rank 0 reports"
    assert "Picture: out/shares.png" in done.stdout
    result = json.loads((tmp_path / "out/heterogeneous.json").read_text())
    even, cannikin = result["runs"]
    assert [one["batches"] for one in even["epochs"]] == [[32, 32, 32]] * 3
    last = cannikin["epochs"][2]
    assert sum(last["batches"]) == 96
    # A machine that is busy disturbs the times that an epoch's division follows.
    divisions = [one["batches"] for one in cannikin["epochs"][1:]]
    assert any(batches[0] > 40 > 25 > batches[2] for batches in divisions), divisions
    # A step is never faster than the nodes; slower it is by what this machine makes of it.
    assert even["epochs"][2]["seconds"] > 1.6 * last["ideal"]
    assert last["seconds"] > last["ideal"]
    seconds = [one["seconds"] for one in cannikin["epochs"][1:]]
    assert min(seconds) < 0.9 * max(one["seconds"] for one in even["epochs"])
    assert not result["interrupted"]


def test_all_ranks_refuse_together(tmp_path: Path) -> None:
    done = launched(tmp_path, 4, "--cluster", "A", "--out", "out")
    assert done.returncode == 2
    assert done.stderr.count("--cluster A has 3 nodes, and this run has 4 ranks") == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_total_batch_is_chosen(tmp_path: Path) -> None:
    options = ("--cluster", "C", "--batch-range", "24:200", "--epochs", "6", "--steps", "4")
    done = launched(tmp_path, 3, *options, "--step-time", "20ms", "--out", "out")
    assert done.returncode == 0, done.stderr
    even, adaptdl, cannikin = json.loads((tmp_path / "out/heterogeneous.json").read_text())["runs"]
    assert {one["total_batch"] for one in even["epochs"]} == {24}
    for run in (adaptdl, cannikin):
        # Fixed times are worth a larger batch; a busy machine adds some.
        assert run["epochs"][-1]["total_batch"] > 24
    # About 0.4 on an idle machine; a busy one disturbs some epochs of both.
    paces = [one["pace"] for one in cannikin["epochs"][2:]]
    assert min(paces) < 0.8 * max(one["pace"] for one in even["epochs"])


def test_finished_epochs_are_kept_after_ctrl_c(tmp_path: Path) -> None:
    options = ("--cluster", "A", "--epochs", "100", "--steps", "4", "--step-time", "40ms")
    options = (*options, "--methods", "cannikin", "--out", "out", "--progress", "always")
    process = subprocess.Popen(
        wagma(3, "bench", "heterogeneous", *options),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        assert process.stderr is not None
        told = ""
        while not re.search(r"\D([89]|\d\d+)/400", told):  # steps, four of them an epoch
            more = process.stderr.read(1)
            assert more, told
            told += more
        os.kill(one_rank(process.pid), signal.SIGINT)
        output, errors = process.communicate(timeout=LIVENESS_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, errors
    assert "interrupted: what is above is not all that was asked for" in errors
    result = json.loads((tmp_path / "out/heterogeneous.json").read_text())
    assert result["interrupted"]
    assert 0 < len(result["runs"][0]["epochs"]) < 100
    assert "step, last epoch, ms" in output
