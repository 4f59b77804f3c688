"""How long a rank of the benchmarks goes on after Ctrl-C: with a communicator of it alone."""

import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("mpi4py")

SCRIPT = """
import os, signal, time
from mpi4py import MPI
from wagma.launch import interrupt

interrupt.PATIENCE_S = {patience}
with interrupt.Interrupt(MPI.COMM_SELF) as interrupted:
    {before}
    os.kill(os.getpid(), signal.SIGINT)
    {after}
    interrupt.PATIENCE_S = 0.2
    time.sleep({seconds})
print("ended")
"""
LOOK = "while not interrupted.agreed(): pass"


def ends(
    before: str = "", after: str = "", patience: float = 0.2, seconds: float = 1
) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.format(before=before, after=after, patience=patience, seconds=seconds)
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_a_rank_that_does_not_look_is_ended() -> None:
    done = ends(seconds=50)
    assert (done.returncode, done.stdout) == (130, "")
    assert "a call did not end" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        # The ranks have agreed: what is left is to print and to write. Until then a busy machine
        # may take its time; afterwards nothing but their agreement keeps the rank for 2 s.
        {"after": LOOK, "patience": 50, "seconds": 2},
        {"before": "interrupted.longest_s = 30"},  # its arrival is far off
    ],
)
def test_a_rank_that_comes_to_its_end_is_not(words: dict[str, Any]) -> None:
    done = ends(**words)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
