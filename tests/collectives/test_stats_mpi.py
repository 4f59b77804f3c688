"""Counters of all ranks over MPI: the same on every rank, and a slow one is named."""

import time
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from wagma.collectives import PartialAllreduce, RankStats

pytestmark = [pytest.mark.mpi, pytest.mark.any_arrays]

QUORUMS = pytest.mark.parametrize("quorum", [1, "all"])


def known_to_all(comm: MPI.Intracomm, gathered: tuple[RankStats, ...]) -> tuple[RankStats, ...]:
    """Checks that all ranks know the same."""
    everywhere = comm.allgather(gathered)
    assert all(other == gathered for other in everywhere)
    return gathered


@QUORUMS
def test_a_slow_rank_is_named(comm: MPI.Intracomm, quorum: Any) -> None:
    slow = comm.size // 2
    x = np.zeros(100, np.float32)
    with PartialAllreduce(comm, x, quorum=quorum) as coll:
        began = time.monotonic()
        for call in range(8):
            time.sleep(0.1 if comm.rank == slow else 0.005)
            if call == 7:  # it is slower, however long a busy machine has stopped the others
                if comm.rank == slow:
                    others = [comm.recv(source=r) for r in range(comm.size) if r != slow]
                    time.sleep(2 * max(others, default=0.0))
                else:
                    comm.send(time.monotonic() - began - coll.stats().waited, slow)
            coll.allreduce(x)
        assert coll.stats().ranks == ()
        coll.close(sync=True)
    stats = coll.stats()
    gathered = known_to_all(comm, stats.ranks)
    assert [row.rank for row in gathered] == list(range(comm.size))
    assert [row.calls for row in gathered] == [8] * comm.size
    assert gathered[slow].compute >= 7 * 0.1  # from the first call on
    assert len(stats.summary().splitlines()) == 2 + comm.size
    if comm.size == 1:
        assert stats.slow == ()
        return
    assert stats.slow[:1] == (slow,)
    assert f"Slow: rank {slow} (" in stats.summary()
    assert stats.summary().splitlines()[2].split()[0] == str(slow)


@QUORUMS
def test_every_sync_version(comm: MPI.Intracomm, quorum: Any) -> None:
    """Without pauses between them, so that a rank is at the next one while others still read."""
    x = np.zeros(3, np.float32)
    seen = []
    with PartialAllreduce(comm, x, quorum=quorum, sync_period=2, grace=0.0) as coll:
        for _ in range(100):
            coll.allreduce(x)
            if coll.version % 2 == 0:
                seen.append(coll.stats().ranks)
    for step, gathered in enumerate(seen):
        known_to_all(comm, gathered)
        version = 2 * step + 1
        assert [(row.version, row.calls) for row in gathered] == [(version, version)] * comm.size


@pytest.mark.mpi(min_size=2)
@QUORUMS
def test_after_departures(comm: MPI.Intracomm, quorum: Any) -> None:
    """Rank r leaves after r + 1 sync versions; the others keep its last counters."""
    x = np.zeros(3, np.float32)
    with PartialAllreduce(comm, x, quorum=quorum, grace=0.0) as coll:
        while coll.version <= comm.rank:
            version = coll.version
            coll.sync(x)
            rows = coll.stats().ranks
            assert [row.departed for row in rows] == [r < version for r in range(comm.size)]
            assert [row.calls for row in rows] == [min(r + 1, version) for r in range(comm.size)]
    assert coll.stats().ranks == rows
