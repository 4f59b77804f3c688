"""Measure ranks that compute or sleep between calls over MPI."""

from collections.abc import Iterator

import pytest
from mpi4py import MPI

from wagma.benchmarks import environment
from wagma.benchmarks.scenarios.idle import idle
from wagma.benchmarks.scenarios.plan import Training
from wagma.benchmarks.scenarios.training import straggler_over_mpi
from wagma.benchmarks.start import Start

pytestmark = pytest.mark.mpi

SHORT = Training(bytes=40_000, versions=20, repeats=2, period=10, sleep=0.05, step=0.001, idle=0.2)


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    comm = MPI.COMM_WORLD
    crowded = bool(environment.crowded_hosts(environment.gather(comm)))
    with Start(comm, crowded=crowded) as made:
        yield made


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("spoil", [False, True])
def test_a_sleeper_and_nobody(comm: MPI.Intracomm, start: Start, spoil: bool) -> None:
    spoiled = 1 if spoil and comm.rank == 0 else None
    found = straggler_over_mpi(comm, start, SHORT, spoiled)
    assert found["sleeper"] == (comm.rank == comm.size - 1)
    assert len(found["present"]["samples_ns"]) == 20
    assert [len(handle["samples_ns"]) for handle in found["handles"]] == [20, 20]
    assert found["counts"]["results"] == 60
    assert found["counts"]["wrong"] == (spoiled is not None), found["counts"]["first_wrong"]


@pytest.mark.mpi(min_size=2)
def test_the_thread_of_a_handle_between_calls(comm: MPI.Intracomm, start: Start) -> None:
    found = idle(comm, start, SHORT)
    assert found["threads"] == 1
    assert found["seconds"] >= 0.2
    assert found["wakeups"] > 1
    assert 0 < found["cpu_ns"] < 1e9 * found["seconds"]
