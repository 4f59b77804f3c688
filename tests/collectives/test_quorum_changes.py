"""k that changes from version to version, and ranks that do not agree about it."""

import random
import re
import time
from collections.abc import Callable
from typing import Any

import delivered
import numpy as np
import pytest
from mpi4py import MPI

from wagma.collectives import HandleError, MismatchError, QuorumAllreduce

pytestmark = [pytest.mark.mpi, pytest.mark.any_arrays]

DISAGREE = 5  # version


def up_and_down(size: int) -> list[int]:
    return [*range(1, size), *range(size, 1, -1)]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(("late", "grace"), [("skip", 0.0), ("skip", "auto"), ("carry", 0.0)])
def test_every_version_has_its_k(comm: MPI.Intracomm, late: Any, grace: Any) -> None:
    """k goes from 1 to all ranks and back; all results are the same to the bit on all ranks."""
    steps = 10 * comm.size
    ks = up_and_down(comm.size)
    plan = delivered.Plan(comm.size, late, 1, steps)
    rng = random.Random(comm.rank)
    x = np.zeros(plan.count, np.float32)
    results: list[np.ndarray] = []
    late_at = []
    with QuorumAllreduce(comm, x, ks[0], late=late, average=False, grace=grace) as coll:
        while coll.version < steps:
            version = coll.version
            coll.k = ks[version % len(ks)]
            x[:] = plan.contribution(comm.rank, version)
            time.sleep(rng.choice((0.0, 0.0, 0.0005, 0.003)))
            outcome = coll.allreduce(x)
            assert coll.k == ks[version % len(ks)]
            if outcome.late:
                late_at.append(version)
            elif len(outcome.results) == 1:  # contributors are those of the newest result
                assert len(outcome.contributors) >= coll.k
            results += [result.copy() for result in outcome.results]
        x[:] = 0
        coll.sync(x)
    del results[steps:]
    assert len({b"".join(r.tobytes() for r in mine) for mine in comm.allgather(results)}) == 1
    fresh = np.array(results)[:, : plan.marks].reshape(steps, comm.size, steps + 1)
    for version in range(steps):
        present = fresh[version, :, version].sum()
        assert present >= ks[version % len(ks)]
        assert (fresh[version, comm.rank, version] == 0) >= (version in late_at)
    if comm.size > 2:
        assert sum(comm.allgather(len(late_at))) > 0


def run(coll: QuorumAllreduce, pause: Callable[[int], float], k: Callable[[int], int]) -> str:
    """Goes on for many versions, and a sync version: the error that ends it, or ""."""
    x = np.ones(3, np.float32)
    try:
        while coll.version < 60:
            time.sleep(pause(coll.version))
            coll.k = k(coll.version)
            coll.allreduce(x)
        coll.sync(x)
    except MismatchError as error:
        coll.fail()
        return str(error)
    coll.close()
    return ""


@pytest.mark.mpi(min_size=2)
@pytest.mark.host_arrays("a rank that fails takes along memory that others need to be told")
@pytest.mark.parametrize("when", ["early", "late", "any time"])
@pytest.mark.parametrize(("ours", "theirs"), [("1", "2"), ("2", "1"), ("all", "1"), ("1", "all")])
def test_all_are_told_of_another_k(comm: MPI.Intracomm, when: str, ours: str, theirs: str) -> None:
    """The last rank has another k in one version, in which it is the first or the last to come."""
    other = comm.size - 1
    numbers = {"1": 1, "2": 2, "all": comm.size}
    if numbers[ours] == numbers[theirs] or comm.size < 2:
        pytest.skip("the same k")
    rng = random.Random(comm.rank)
    mine = theirs if comm.rank == other else ours

    def pause(version: int) -> float:
        if when == "any time":
            return rng.choice((0.0, 0.001))
        waits = (comm.rank == other) == (when == "late")
        return 0.05 if version == DISAGREE and waits else 0.0

    coll = QuorumAllreduce(comm, np.ones(3, np.float32), 1, grace=0, window=8, timeout=30)
    # All come to the versions before it, so that all call it.
    told = run(coll, pause, lambda v: numbers[mine] if v >= DISAGREE else comm.size)
    pattern = re.compile(
        r"rank (\d+) called version (\d+) with quorum (\d+), and rank (\d+) with quorum (\d+): "
        r"every rank has to call a version with the same quorum"
    )
    found = pattern.search(told)
    assert found, told
    rank, version, k, rank2, k2 = map(int, found.groups())
    assert version >= DISAGREE
    pair = {rank == other: k, rank2 == other: k2}
    assert pair == {True: numbers[theirs], False: numbers[ours]}


@pytest.mark.mpi(min_size=2)
def test_one_version_is_enough(comm: MPI.Intracomm) -> None:
    """Ranks that agree again afterwards are told all the same, in a sync version at the latest."""
    coll = QuorumAllreduce(comm, np.ones(3, np.float32), 1, grace=0, window=8, timeout=30)
    last = comm.size - 1
    wrong = {DISAGREE: 1 if comm.rank == last else comm.size}
    told = run(coll, lambda _: 0.0, lambda version: wrong.get(version, comm.size))
    assert f"version {DISAGREE} with quorum" in told


def test_what_k_cannot_be(comm: MPI.Intracomm) -> None:
    x = np.ones(3, np.float32)
    with QuorumAllreduce(comm, x, 1, grace=0) as coll:
        for k in (0, comm.size + 1, -1):
            with pytest.raises(ValueError, match=rf"k={k} must be 1 to .* \({comm.size}\)"):
                coll.k = k
        for wrong in ("all", "majority", None, 1.0, True):
            with pytest.raises(TypeError, match="must be an integer"):
                coll.k = wrong  # type: ignore[assignment]
        request = coll.iallreduce(x)
        with pytest.raises(HandleError, match="pending"):
            coll.k = 1
        request.wait()
        coll.k = 1
        assert coll.k == 1
    assert coll.k == 1
    with pytest.raises(HandleError, match="closed"):
        coll.k = 1


@pytest.mark.mpi(min_size=2)
@pytest.mark.host_arrays("on a GPU k may change from that of all ranks")
def test_where_k_cannot_change(comm: MPI.Intracomm) -> None:
    x = np.ones(3, np.float32)
    with QuorumAllreduce(comm, x, comm.size) as every:
        every.k = comm.size
        with pytest.raises(ValueError, match="make it with fewer ranks"):
            every.k = 1
        assert not every.allreduce(x).late
    with QuorumAllreduce(comm, x, comm.size - 1) as fewer:  # which is what the error says
        fewer.k = comm.size
        assert not fewer.allreduce(x).late
        fewer.k = 1
        while fewer.version < 2:  # unless the first call has brought both
            fewer.allreduce(x)
        fewer.sync(x)
    with QuorumAllreduce(comm, x, 1, late="stale") as stale:
        with pytest.raises(ValueError, match="late is"):
            stale.k = 2
        assert stale.k == 1
