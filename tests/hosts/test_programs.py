"""The project's own programs across hosts: the demo and the benchmark."""

import json
import sys
from pathlib import Path

import pytest
from crossing import counted
from emulated import Hosts
from launchers import Launcher

pytestmark = [pytest.mark.hosts, pytest.mark.long, pytest.mark.usefixtures("machine")]

WAGMA = [sys.executable, "-m", "wagma"]


def test_demo(launcher: Launcher, tmp_path: Path) -> None:
    steps, parameters = 30, 1898
    words = ["demo", "--transport", "mpi", "--steps", str(steps), "--imbalance", "paper:2:0.02"]
    outputs = ["--picture", str(tmp_path / "demo.png"), "--json", str(tmp_path / "demo.json")]
    with Hosts(2) as hosts, counted(hosts) as crossed:
        done = launcher.run(hosts, [*WAGMA, *words, *outputs])
    assert done.returncode == 0, done.stderr
    assert "s to 95 %" in done.stdout
    assert json.loads((tmp_path / "demo.json").read_text())
    assert (tmp_path / "demo.png").stat().st_size > 0
    crossed.check_at_least(4 * parameters * steps)


def test_bench(launcher: Launcher) -> None:
    words = ["bench", "allreduce", "-m", "1048576:1048576", "-i", "5", "-x", "1", "-c"]
    with Hosts(2) as hosts, counted(hosts) as crossed:
        done = launcher.run(hosts, [*WAGMA, *words, "--transport", "mpi"])
    assert done.returncode == 0, done.stdout + done.stderr
    size, _, correct = next(
        line.split() for line in done.stdout.splitlines() if line.startswith("1048576")
    )
    assert (size, correct) == ("1048576", "Pass")
    crossed.check_at_least(6 * 1048576)
