"""Methods whose ranks leave, or fail, while the others go on."""

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from wagma.collectives import (
    MajorityAllreduce,
    PartialAllreduce,
    PeerError,
    QuorumAllreduce,
    SoloAllreduce,
)

pytestmark = [pytest.mark.mpi, pytest.mark.any_arrays]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("late", ["skip", "carry"])
def test_all_that_are_left_start(comm: MPI.Intracomm, late: Any) -> None:
    """A departed rank counts as arrived and weighs nothing: the others are a quorum of k = P."""
    x = np.zeros(3, np.float32)
    with QuorumAllreduce(comm, x, comm.size, late=late) as coll:
        for version in range(2 * (comm.rank + 1)):
            x[:] = comm.rank + 1
            outcome = coll.allreduce(x)
            assert (outcome.version, outcome.late, len(outcome.results)) == (version, False, 1)
            # Rank r leaves after 2(r+1) versions; before that it may not be missing.
            present = range(version // 2, comm.size)
            assert set(present) == set(outcome.contributors)
            assert (x == np.float32(np.mean([rank + 1 for rank in present]))).all()


@pytest.mark.mpi(min_size=2)
@pytest.mark.host_arrays("the class is a parameter")
@pytest.mark.parametrize("kind", [SoloAllreduce, MajorityAllreduce])
def test_leaving_keeps_nobody(comm: MPI.Intracomm, kind: type[PartialAllreduce]) -> None:
    """The last rank goes on for windows on end; what the others have contributed reaches it."""
    x = np.zeros(comm.size, np.float32)
    total = np.zeros(comm.size)
    steps = 10 * (comm.rank + 1)
    with kind(comm, x, average=False, window=4, grace=0) as coll:
        carried = 0.0
        while coll.version < steps:
            x[:] = 0
            x[comm.rank] = 1
            outcome = coll.allreduce(x)
            carried = carried + 1 if outcome.late else 0.0  # lost, if this was the last call
            for result in outcome.results:
                total += result
        calls = coll.stats().calls
    lost = comm.allgather(carried)
    made = comm.allgather(calls)
    if comm.rank == comm.size - 1:
        np.testing.assert_array_equal(total, np.subtract(made, lost))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("late", ["skip", "carry"])
def test_a_rank_that_fails_is_named(comm: MPI.Intracomm, late: Any) -> None:
    """Its next results will never be fetched: whom the window keeps learns why."""
    x = np.zeros(3, np.float32)
    with pytest.raises(ZeroDivisionError if comm.rank == 1 else PeerError) as caught:  # noqa: SIM117
        with QuorumAllreduce(comm, x, comm.size - 1, late=late) as coll:
            coll.allreduce(x)
            if comm.rank == 1:
                raise ZeroDivisionError
            while True:
                coll.allreduce(x)
    if comm.rank != 1:
        assert "rank" in str(caught.value)
