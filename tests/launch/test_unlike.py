"""Commands whose ranks were started with different arguments: nobody waits, and it is said once."""

import subprocess
import sys
from pathlib import Path

import pytest
from under_mpiexec import unlike

WAGMA = [sys.executable, "-m", "wagma"]


def check(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2, done.stderr
    assert (done.stdout + done.stderr).count(message) == 1
    assert "Traceback" not in done.stderr


# Of rank 0 and rank 1, and what is said once.
TUNE = {
    "seconds": (("--seconds", "1"), ("--seconds", "2"), "--seconds is 1.0 on rank 0, 2.0 on"),
    "largest": ((), ("--largest", "1MiB"), "--largest is 8388608 on rank 0, 1048576 on rank 1;"),
    "file": ((), ("--file", "other.json"), "--file is "),
    "refused": ((), ("--largest", "1"), "rank 1 takes no part: argument --largest: '1' must be"),
    "help": ((), ("--help",), "rank 1 takes no part: it only shows its help"),
}


DEMO = {
    "steps": (("--steps", "1"), ("--steps", "2"), "--steps is 1 on rank 0, 2 on rank 1;"),
    "imbalance": ((), ("--imbalance", "none"), "--imbalance is not given on rank 0, none on"),
    "refused": (("--steps", "0"), (), "argument --steps: 0 is too small: at least 1"),
}


@pytest.mark.parametrize("case", DEMO)
def test_demo(case: str, tmp_path: Path) -> None:
    pytest.importorskip("rich")
    first, second, message = DEMO[case]
    given = [*WAGMA, "demo", "--out", str(tmp_path / "demo.png")]
    check(unlike([*given, *first], [*given, *second]), message)
    assert not (tmp_path / "demo.png").exists()


def test_training() -> None:
    pytest.importorskip("rich")
    given = [*WAGMA, "bench", "training"]
    refused = "rank 1 takes no part: argument --algorithms"
    check(unlike(given, [*given, "--algorithms", "sgd"]), refused)


def test_commands_that_differ() -> None:
    pytest.importorskip("rich")
    training, allreduce = ([*WAGMA, "bench", kind] for kind in ("training", "allreduce"))
    check(unlike(training, allreduce), "give all ranks one command")


@pytest.mark.parametrize("case", TUNE)
def test_tune(case: str, tmp_path: Path) -> None:
    first, second, message = TUNE[case]
    file = tmp_path / "tune.json"
    given = [*WAGMA, "tune", "--file", str(file)]
    check(unlike([*given, *first], [*given, *second]), message)
    assert not file.exists()
