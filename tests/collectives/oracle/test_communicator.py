"""The oracle's communicator and verdict: what is counted, what goes where."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from communicator import Communicator, Tally
from mpi4py import MPI

pytestmark = pytest.mark.oracle


@pytest.fixture
def tally(monkeypatch: pytest.MonkeyPatch) -> Tally:
    monkeypatch.setattr(Communicator, "tally", Tally())
    return Communicator.tally


@pytest.fixture
def comm(tally: Tally) -> Iterator[Communicator]:  # noqa: ARG001
    comm = Communicator(MPI.COMM_WORLD).Dup()
    yield comm
    comm.Free()


def counts(tally: Tally) -> tuple[int, int]:
    return tally.eligible.total(), tally.wagma.total()


@pytest.mark.parametrize(
    "message",
    [lambda x: x, lambda x: [x, "d"], lambda x: (x, MPI.DOUBLE), lambda x: [x, x.size, MPI.DOUBLE]],
)
def test_messages_that_are_understood(comm: Communicator, tally: Tally, message) -> None:
    x, y = np.arange(3.0), np.zeros(3)
    comm.Allreduce(message(x), message(y))
    comm.Allreduce(None, message(x), op=MPI.SUM)
    assert counts(tally) == (2, 2)
    assert np.array_equal(y, np.arange(3.0) * comm.size)
    assert np.array_equal(x, y)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8"])
def test_types(comm: Communicator, tally: Tally, dtype: str) -> None:
    x, nothing = np.full(5, comm.rank, dtype), np.zeros(0, dtype)
    comm.Allreduce(MPI.IN_PLACE, x)
    comm.Allreduce(MPI.IN_PLACE, nothing)
    assert counts(tally) == (2, 2)
    assert np.array_equal(x, np.full(5, sum(range(comm.size)), dtype))


def test_what_is_not_eligible_goes_to_mpi(comm: Communicator, tally: Tally) -> None:
    x, y = np.full(3, comm.rank, "u4"), np.full(3, comm.rank, "f8")
    comm.Allreduce(MPI.IN_PLACE, x)
    comm.Iallreduce(MPI.IN_PLACE, y, MPI.MAX).Wait()
    assert counts(tally) == (0, 0)
    assert x[0] == sum(range(comm.size))
    assert y[0] == comm.size - 1


def test_what_is_not_understood_counts_against_wagma(comm: Communicator, tally: Tally) -> None:
    x = np.full(4, 1.0)
    comm.Allreduce(MPI.IN_PLACE, [x, (2, 1), MPI.DOUBLE])
    assert counts(tally) == (1, 0)
    assert list(x) == [1, comm.size, comm.size, 1]


def test_requests(comm: Communicator, tally: Tally) -> None:
    x, y, z = np.full(3, comm.rank, "f4"), np.zeros(3, "f4"), np.ones(3, "f4")
    first = comm.Iallreduce(x, y)
    second = comm.Iallreduce(MPI.IN_PLACE, z)
    while not second.Test():
        pass
    assert first.Wait()
    assert first.Test()
    assert counts(tally) == (2, 2)
    assert np.array_equal(y, np.full(3, sum(range(comm.size))))
    assert np.array_equal(z, np.full(3, comm.size))


@pytest.mark.parametrize(
    ("eligible", "wagma", "fails"), [(10, 10, False), (10, 9, False), (10, 8, True), (0, 0, True)]
)
def test_verdict(eligible: int, wagma: int, fails: bool) -> None:
    tally = Tally("", Counter(good=5, checked=eligible), Counter(good=5, checked=wagma))
    assert bool(tally.problems(["checked", "good"])) == fails


def test_nothing_tested_is_a_failure() -> None:
    assert Tally().problems([])
