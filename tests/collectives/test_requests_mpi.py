"""iallreduce and the out-of-place form over real MPI ranks, for every executor."""

import random
import re
import time
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from stalls import overdue

from wagma.collectives import HandleError, Outcome, PartialAllreduce, Request

pytestmark = [pytest.mark.mpi, pytest.mark.any_arrays]

EXECUTORS = pytest.mark.parametrize("quorum", ["all", 1])
COUNTS = pytest.mark.parametrize("count", [1, 20_011])


def complete(request: Request, rng: random.Random) -> Outcome:
    """By waiting, by waiting a little again and again, or by testing."""
    way = rng.choice(("wait", "repeat", "test"))
    while True:
        if way == "wait":
            return request.wait()
        if way == "test":
            outcome = request.test()
            if outcome is not None:
                return outcome
            time.sleep(0.0002)
            continue
        try:
            return request.wait(timeout=0.0005)
        except TimeoutError as error:
            assert f"version {request.version} " in str(error)


def expected(outcome: Outcome, rank: int) -> float:
    """The sum of what the outcome lists, and of the own contribution where it was late."""
    pairs = list(zip(outcome.contributors, outcome.versions, strict=True))
    if not outcome.merged:
        pairs = []
    if outcome.late:
        pairs.append((rank, outcome.version))
    return sum(value(*pair) for pair in pairs)


def value(rank: int, version: int) -> float:
    """A whole number: sums of 8 are exact in float64."""
    return float((rank + 1) * 1009 + (version + 1) * 1_000_003)


@EXECUTORS
@COUNTS
def test_posted_versions(comm: MPI.Intracomm, quorum: Any, count: int) -> None:
    """Every rank posts, computes unevenly, completes; sums say whose contributions they hold."""
    rng = random.Random(comm.rank)
    x = np.full(count, value(comm.rank, -1))
    with PartialAllreduce(
        comm, x, quorum=quorum, group_size=min(4, comm.size), sync_period=8, average=False, grace=0
    ) as coll:
        while coll.version < 48:
            version = coll.version
            x[:] = value(comm.rank, version)
            request = coll.iallreduce(x)
            time.sleep(rng.choice((0.0, 0.0, 0.001)))
            outcome = complete(request, rng)
            assert outcome.version == version
            assert (x == expected(outcome, comm.rank)).all()


@COUNTS
@pytest.mark.host_arrays("a contribution on a GPU is no array of numpy")
def test_out_of_place(comm: MPI.Intracomm, count: int) -> None:
    """The same, where the contribution is written where it is read from."""
    if comm.size == 1:
        pytest.skip("a rank alone has no contribution buffers")
    rng = random.Random(comm.rank)
    x = np.full(count, value(comm.rank, -1))
    with PartialAllreduce(
        comm, x, quorum=1, group_size=comm.size, sync_period=8, average=False, grace=0
    ) as coll:
        while coll.version < 48:
            version = coll.version
            buffer = coll.next_contribution()
            buffer[:] = value(comm.rank, version)
            if rng.random() < 0.5:
                outcome = coll.allreduce(buffer)
            else:
                outcome = complete(coll.iallreduce(buffer), rng)
            assert (outcome.result is not None) == outcome.merged
            if outcome.result is not None:
                assert (outcome.result == expected(outcome, comm.rank)).all()


@pytest.mark.mpi(min_size=2)
@EXECUTORS
@pytest.mark.host_arrays("on a GPU test() or wait() publishes what is not there at once")
def test_others_do_not_wait_for_who_has_posted(comm: MPI.Intracomm, quorum: Any) -> None:
    """Rank 0 posts and calls nothing until all others have completed the version."""
    x = np.full(3, 1.0 + comm.rank)
    with PartialAllreduce(comm, x, quorum=quorum, average=False, grace=0) as coll:
        request = coll.iallreduce(x) if comm.rank == 0 else None
        comm.Barrier()
        if request is None:
            outcome = coll.allreduce(x)
        comm.Barrier()
        if request is not None:
            outcome = request.wait()
            with pytest.raises(HandleError, match="complete"):
                request.test()
        assert 0 in outcome.contributors
        assert x[0] == sum(1.0 + rank for rank in outcome.contributors) or outcome.late
        assert not (comm.rank == 0 and outcome.late)


@pytest.mark.mpi(min_size=2)
@EXECUTORS
def test_waits_end_in_time(comm: MPI.Intracomm, quorum: Any) -> None:
    """All but the last rank are told for whom they wait; then it comes."""
    last = comm.size - 1
    x = np.ones(3)
    with PartialAllreduce(comm, x, quorum=quorum, sync_period=1, average=False) as coll:
        if comm.rank == last:
            comm.Barrier()
            coll.allreduce(x)
        else:
            request = coll.iallreduce(x)
            assert re.search(rf"version 0 .*\b{last}\b", overdue(request, 0.01))
            comm.Barrier()
            request.wait()
        assert (x == comm.size).all()
