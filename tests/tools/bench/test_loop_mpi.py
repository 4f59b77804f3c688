"""The benchmarks' common start and their loop in C under MPI."""

import time

import numpy as np
import pytest
from mpi4py import MPI

from wagma.benchmarks import native
from wagma.benchmarks._loop import outcome_dtype, run
from wagma.benchmarks.start import Start
from wagma.collectives import PartialAllreduce

pytestmark = pytest.mark.mpi

ITERATIONS = 30
COUNT = 5
ROWS = 3


def inputs_of(rank: int) -> np.ndarray:
    return np.arange(ROWS * COUNT, dtype=np.float64).reshape(ROWS, COUNT) * (rank + 1) + rank


def sums(size: int) -> np.ndarray:
    """The right result of each iteration."""
    by_row = sum(inputs_of(rank) for rank in range(size))
    return by_row[np.arange(ITERATIONS) % ROWS]


class Times:
    def __init__(self) -> None:
        self.arrivals, self.began, self.ended = np.zeros((3, ITERATIONS), np.int64)

    def check(self, comm: MPI.Intracomm) -> None:
        """All calls are synchronous, and on one clock."""
        began, ended = np.array(comm.allgather((self.began, self.ended))).transpose(1, 2, 0)
        assert (began <= ended).all()
        assert (ended >= began.max(axis=1, keepdims=True)).all(), "left before the last came"
        assert (began[1:] >= ended[:-1].max(axis=1, keepdims=True)).all(), "began too early"


@pytest.fixture
def start(comm: MPI.Intracomm) -> Start:
    with Start(comm, crowded=True) as made:
        assert made.shared, "the ranks of the tests are on one node"
        assert made.error_ns == 0
        yield made
        made.meet()


@pytest.mark.parametrize("in_place", [True, False])
def test_sums_of_mpi_are_right(comm: MPI.Intracomm, start: Start, in_place: bool) -> None:
    sendbuf, recvbuf = np.zeros((2, COUNT))
    sent = None if in_place else sendbuf.ctypes.data
    call = native.mpi_call(comm, sent, recvbuf.ctypes.data, COUNT, MPI.DOUBLE, MPI.SUM)
    times = Times()
    results = np.zeros((ITERATIONS, COUNT))
    run(
        start,
        call,
        recvbuf.ctypes.data if in_place else sendbuf.ctypes.data,
        inputs_of(comm.rank).view(np.uint8),
        times.arrivals,
        times.began,
        times.ended,
        results.view(np.uint8),
    )
    assert (results == sums(comm.size)).all()
    times.check(comm)


@pytest.mark.parametrize("shared", [True, False])
def test_sums_of_wagma_are_right(comm: MPI.Intracomm, start: Start, shared: bool) -> None:
    times = Times()
    results = np.zeros((ITERATIONS, COUNT))
    outcomes = np.zeros(ITERATIONS, outcome_dtype(comm.size))
    with PartialAllreduce(comm, np.zeros(COUNT), quorum="all", average=False) as coll:
        x = coll.empty() if shared else np.zeros(COUNT)
        run(
            start,
            native.wagma_call(coll),
            x.ctypes.data,
            inputs_of(comm.rank).view(np.uint8),
            times.arrivals,
            times.began,
            times.ended,
            results.view(np.uint8),
            outcomes,
        )
        start.meet()
    assert (results == sums(comm.size)).all()
    assert (outcomes["contributors"] == np.arange(comm.size)).all()
    assert (outcomes["versions"] == np.arange(ITERATIONS)[:, np.newaxis]).all()
    assert not outcomes["late"].any()
    times.check(comm)


def test_shifted_clocks_are_found_out(comm: MPI.Intracomm) -> None:
    """Ranks without shared memory, whose clocks are days apart; in truth they have one."""
    day = 86400 * 10**9
    shifts = [-3 * day, 2 * day, 0, 7 * day, -day, 123, -456, 10 * day]
    shift = shifts[comm.rank % len(shifts)]
    with Start(comm, crowded=True, shared=False, offset_ns=shift) as start:
        assert not start.shared
        assert (start.error_ns == 0) == (comm.rank == 0)
        # Everybody's clock is rank 0's, which is shifted too.
        assert abs(start.correction_ns - shifts[0]) <= start.error_ns
        widest = comm.allreduce(start.error_ns, op=MPI.MAX)
        for arrival in (0, 1_000_000):
            came = start.now()
            begin = start.wait(arrival)
            left = start.now()
            assert len(set(comm.allgather(begin))) == 1
            assert begin >= max(comm.allgather(came))
            if arrival:
                assert left >= begin + arrival
            start.meet()
            assert start.now() >= begin - widest
        start.correction_ns += 10**12 * comm.rank
        drift = start.drift() + 10**12 * comm.rank
        # The clock is rank 0's again; what is found is wrong by the error then and half a round
        # trip now, both far below this.
        assert abs(drift) < 10**11


def test_missed_starts_widen_the_margin_of_all(comm: MPI.Intracomm) -> None:
    with Start(comm, crowded=False, shared=False) as start:
        start.margin_ns = 1000
        if comm.rank == comm.size - 1:
            start.margin_ns = -(10**9)  # for this rank every start has gone by
        start.wait()
        assert start.missed == (1 if comm.rank == comm.size - 1 else start.missed)
        start.margin_ns = 1000
        start.wait()
        margins = comm.allgather(start.margin_ns)
    assert margins == [2000] * comm.size


def test_ranks_that_sleep_are_waited_for(comm: MPI.Intracomm, start: Start) -> None:
    for sleeper in range(comm.size):
        if comm.rank == sleeper:
            time.sleep(0.01)
        came = start.now()
        begin = start.wait()
        assert begin >= max(comm.allgather(came))


def test_a_shifted_clock_needs_messages(comm: MPI.Intracomm) -> None:
    for shared in (None, True):
        with pytest.raises(ValueError, match="offset_ns=7"):
            Start(comm, crowded=True, shared=shared, offset_ns=7)


def test_a_start_that_was_closed(comm: MPI.Intracomm) -> None:
    start = Start(comm, crowded=True, shared=False)
    start.close()
    start.close()
    with pytest.raises(ValueError, match="closed"):
        start.wait()
