"""The table of steps whose gradients leave in one piece, in buckets and with DDP."""

import sys

import pytest
from under_mpiexec import complete, launcher

pytestmark = [pytest.mark.training, pytest.mark.long]

COMMAND = [sys.executable, "-m", "wagma.benchmarks.overlap"]
TINY = ("--layers", "3", "--width", "16", "--batch", "4", "--steps", "2", "--runs", "1")


def test_a_line_without_and_one_with_the_sleep() -> None:
    """A step lasts as long as all layers sleep, at least."""
    done = complete([*launcher(), "-n", "2", *COMMAND, *TINY, "--sleep", "5ms", "--bucket", "2KiB"])
    assert done.returncode == 0, done.stderr
    told, head, *lines = done.stdout.splitlines()
    assert told.startswith("2 ranks, 3 layers of 16 x 16, 4 samples on each rank;")
    assert " ".join(head.split()) == "sleep in a layer in one piece in 2 KiB buckets DDP, gloo"
    without, slept = ([float(word) for word in line[17:].split()] for line in lines)
    assert lines[0].startswith("            none ")
    assert lines[1].startswith("         5.00 ms ")
    assert len(without) == 3
    assert all(one > 0 for one in without)
    assert len(slept) == 3
    assert all(one >= 15 for one in slept)


def test_wrong_options_are_named() -> None:
    done = complete([*COMMAND, "--layers", "0"])
    assert done.returncode == 2
    assert "argument --layers: 0 is too small: at least 1" in done.stderr
