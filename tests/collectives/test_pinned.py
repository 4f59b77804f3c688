"""Whether a version was pinned without a rank, asked between calls."""

import time
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from wagma.collectives import HandleError, PartialAllreduce, QuorumAllreduce, SyncAllreduce

pytestmark = [pytest.mark.mpi, pytest.mark.any_arrays]


def soon_pinned(coll: PartialAllreduce) -> bool:
    """Over messages the others' version has to arrive first."""
    end = time.monotonic() + 20
    while not coll.pinned():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("progress", ["sleep:1000", "main"])
@pytest.mark.parametrize("late", ["stale", "skip", "carry"])
def test_a_rank_that_stays_away_is_told(comm: MPI.Intracomm, late: Any, progress: Any) -> None:
    """False until the others have pinned the version, and after this rank's own call."""
    away, steps = comm.size - 1, 3
    x = np.ones(5, np.float32)
    kept = x.copy()
    with PartialAllreduce(
        comm, x, quorum=max(1, comm.size - 1), late=late, window=8, grace=0, progress=progress
    ) as coll:
        for version in range(steps):
            assert not coll.pinned()
            comm.Barrier()
            if comm.rank != away:
                coll.allreduce(x)
                assert not coll.pinned()
            else:
                assert soon_pinned(coll)
                assert coll.pinned(), "it stays so"
                assert coll.version == version, "and nothing was called"
                assert (x == kept).all()
                outcome = coll.allreduce(x)
                assert outcome.late
                assert not coll.pinned()
            kept = x.copy()
            comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_versions_that_were_missed(comm: MPI.Intracomm) -> None:
    """A late rank that calls them one by one finds each pinned, up to the newest."""
    behind, steps = comm.size - 1, 4
    x = np.ones(2, np.float32)
    with PartialAllreduce(comm, x, quorum=1, late="stale", window=10, grace=0) as coll:
        if comm.rank != behind:
            while coll.version < steps:
                coll.allreduce(x)
        comm.Barrier()
        while comm.rank == behind and coll.version < steps:
            assert soon_pinned(coll)
            assert coll.allreduce(x).late
        comm.Barrier()
        assert not coll.pinned()


@pytest.mark.mpi(min_size=2)
def test_what_is_never_pinned_without_a_rank(comm: MPI.Intracomm) -> None:
    """Versions of all ranks, among them sync versions."""
    x = np.ones(2, np.float32)
    with (
        SyncAllreduce(comm, x) as every,
        PartialAllreduce(comm, x, quorum=1, sync_period=1, grace=0) as sync,
    ):
        for coll in (every, sync):
            if comm.rank > 0:
                request = coll.iallreduce(x)
                comm.Barrier()
                request.wait()
            else:
                comm.Barrier()
                time.sleep(0.02)
                assert not coll.pinned()
                coll.allreduce(x)
            assert not coll.pinned()


def test_when_it_is_refused(comm: MPI.Intracomm) -> None:
    x = np.ones(2, np.float32)
    coll = QuorumAllreduce(comm, x, 1, grace=0)
    request = coll.iallreduce(x)
    with pytest.raises(HandleError, match="pending"):
        coll.pinned()
    request.wait()
    coll.close()
    with pytest.raises(HandleError, match="closed"):
        coll.pinned()


@pytest.mark.shm("over messages it may have to drive MPI")
@pytest.mark.mpi(min_size=2)
def test_it_may_be_asked_often(comm: MPI.Intracomm) -> None:
    """Below 1 us where nothing else wants the core; here with room for a busy machine."""
    x = np.ones(2, np.float32)
    with QuorumAllreduce(comm, x, 1, grace=0) as coll:
        coll.allreduce(x)
        comm.Barrier()
        if comm.rank == 0:
            best = min(timed(coll) for _ in range(20))
            assert best < 5e-6
        comm.Barrier()


def timed(coll: PartialAllreduce) -> float:
    """Seconds of one question."""
    begin = time.perf_counter()
    for _ in range(200):
        coll.pinned()
    return (time.perf_counter() - begin) / 200
