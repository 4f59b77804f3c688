"""Results over real MPI ranks, for every group size, against numpy and the invariants."""

import random
import threading
from typing import Any

import numpy as np
import pytest
import versioned
from mpi4py import MPI
from teams import teams

from wagma.collectives import GroupAllreduce, PartialAllreduce, PeerError

pytestmark = [pytest.mark.mpi, pytest.mark.any_arrays]


def uneven(rng: random.Random) -> float:
    return rng.choice((0.0, 0.0, 0.0, 0.0005, 0.003))


def replay(
    comm: MPI.Intracomm, plan: versioned.Plan, steps: int, delay: Any = uneven, **options: Any
) -> dict[str, int]:
    """Runs a plan; rank 0 checks the logs of all."""
    x = plan.contribution(comm.rank, -1)
    with PartialAllreduce(
        comm,
        x,
        group_size=plan.group_size,
        quorum=plan.quorum,
        sync_period=plan.sync_period,
        window=plan.window,
        average=plan.average,
        **options,
    ) as coll:
        log = versioned.run(plan, comm.rank, coll, x, steps, delay=delay)
    logs = comm.gather(log)
    return versioned.check(plan, logs) if logs is not None else {}


@pytest.mark.parametrize("group_size", range(1, 9))
def test_wait_avoiding(comm: MPI.Intracomm, group_size: int) -> None:
    for team in teams(comm, least=group_size):
        plan = versioned.Plan(team.size, group_size, quorum=1, sync_period=8, window=8)
        seen = replay(team, plan, 40, grace=0.0)
        if team.rank == 0 and group_size > 1:
            assert seen["calls"] == team.size * 41
            assert seen["late"] > 0


@pytest.mark.parametrize("group_size", range(1, 9))
def test_quorum_all(comm: MPI.Intracomm, group_size: int) -> None:
    for team in teams(comm, least=group_size):
        plan = versioned.Plan(team.size, group_size, quorum=group_size, sync_period=8, window=8)
        seen = replay(team, plan, 20)
        assert seen.get("late", 0) == 0


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("weights", [True, False])
def test_quorums_and_weights(comm: MPI.Intracomm, average: bool, weights: bool) -> None:
    plan = versioned.Plan(comm.size, comm.size, 2, None, 12, average, weights)
    replay(comm, plan, 50, grace=0.0)


def test_default_grace(comm: MPI.Intracomm) -> None:
    plan = versioned.Plan(comm.size, comm.size, 1, 10, 10)
    replay(comm, plan, 60)


@pytest.mark.parametrize("quorum", [1, "all"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
def test_dtypes_against_numpy(comm: MPI.Intracomm, dtype: str, quorum: Any) -> None:
    """Sums of what every dtype holds exactly; a sync version, so that all are fresh."""
    base = np.arange(-8, 9)
    weight = 1 + comm.rank % 2
    x = (base * (comm.rank + 1)).astype(dtype)
    total = sum(base * (rank + 1) * (1 + rank % 2) for rank in range(comm.size))
    with PartialAllreduce(comm, x, average=False, quorum=quorum) as coll:
        outcome = coll.sync(x, weight)
    np.testing.assert_array_equal(x, total)
    assert outcome.weight == sum(1 + rank % 2 for rank in range(comm.size))
    assert outcome.contributors == tuple(range(comm.size))


@pytest.mark.parametrize("quorum", [1, "all"])
def test_averages_against_numpy(comm: MPI.Intracomm, quorum: Any) -> None:
    weights = [0.5 + rank for rank in range(comm.size)]
    inputs = [
        np.random.default_rng(rank).standard_normal(1000).astype(np.float32)
        for rank in range(comm.size)
    ]
    x = inputs[comm.rank].copy()
    with PartialAllreduce(comm, x, quorum=quorum) as coll:
        coll.sync(x, weights[comm.rank])
    expected = np.average(np.array(inputs, np.float64), axis=0, weights=weights)
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 3, 2**20 + 1])
def test_counts(comm: MPI.Intracomm, count: int) -> None:
    for quorum in (1, "all"):
        x = np.full(count, comm.rank, np.float32)
        with PartialAllreduce(comm, x, quorum=quorum, sync_period=1) as coll:
            coll.allreduce(x)
        assert (x == np.float32((comm.size - 1) / 2)).all()


@pytest.mark.mpi(min_size=2)
def test_weight_zero_is_not_read(comm: MPI.Intracomm) -> None:
    x = np.full(100, np.nan if comm.rank == 0 else 3.0, np.float32)
    for quorum in (1, "all"):
        y = x.copy()
        with PartialAllreduce(comm, x, quorum=quorum) as coll:
            outcome = coll.sync(y, float(comm.rank > 0))
        assert outcome.contributors == tuple(range(1, comm.size))
        assert (y == 3).all()


def test_weights_of_zero_everywhere(comm: MPI.Intracomm) -> None:
    x = np.full(4, comm.rank, np.float32)
    for quorum in (1, "all"):
        with PartialAllreduce(comm, x, quorum=quorum) as coll:
            outcome = coll.sync(x, 0.0)
        assert (outcome.merged, outcome.weight, outcome.contributors) == (False, 0.0, ())
        assert (x == comm.rank).all()


@pytest.mark.mpi(min_size=2)
@pytest.mark.host_arrays("on a GPU there is no empty()")
def test_empty_arrays(comm: MPI.Intracomm) -> None:
    """Reduced where they lie; what another rank does afterwards does not show in them."""
    for quorum in (1, "all"):
        with PartialAllreduce(comm, np.zeros(5000, np.float32), quorum=quorum) as coll:
            x = coll.empty()
            for version in range(20):
                x[:] = comm.rank + version
                coll.sync(x)
                mean = version + (comm.size - 1) / 2
                assert (x == np.float32(mean)).all()
                if comm.rank == version % comm.size:
                    threading.Event().wait(0.002)
                assert (x == np.float32(mean)).all()


@pytest.mark.mpi(min_size=2)
def test_several_collectives_at_once(comm: MPI.Intracomm) -> None:
    """Each with its own versions, over overlapping communicators."""
    halves = comm.Split(comm.rank % 2)
    x = np.full(7, comm.rank, np.float32)
    with (
        PartialAllreduce(comm, x, average=False) as all_ranks,
        PartialAllreduce(halves, x, average=False) as half,
        GroupAllreduce(comm, x, group_size=comm.size, sync_period=1) as averaged,
    ):
        for _ in range(10):
            a, b, c = x.copy(), x.copy(), x.copy()
            all_ranks.allreduce(a)
            half.allreduce(b)
            half.allreduce(c)
            averaged.allreduce(c)
            everyone = range(comm.size)
            assert a[0] == sum(everyone)
            assert b[0] == sum(r for r in everyone if r % 2 == comm.rank % 2)
        assert (all_ranks.version, half.version, averaged.version) == (10, 20, 10)
    halves.Free()


@pytest.mark.mpi(min_size=2)
def test_threads_with_collectives_of_their_own(comm: MPI.Intracomm) -> None:
    colls = [PartialAllreduce(comm, np.zeros(3, np.float32), average=False) for _ in range(3)]
    errors: list[BaseException] = []

    def body(number: int) -> None:
        try:
            x = np.zeros(3, np.float32)
            for version in range(30):
                x[:] = number + version + comm.rank
                colls[number].allreduce(x)
                expected = sum(number + version + rank for rank in range(comm.size))
                assert (x == expected).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for coll in colls:
        coll.close()
    if errors:
        raise errors[0]


# ---- leaving -------------------------------------------------------------------------------------


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("quorum", [1, "all"])
def test_ranks_leave_one_after_the_other(comm: MPI.Intracomm, quorum: Any) -> None:
    x = np.zeros(3, np.float32)
    coll = PartialAllreduce(comm, x, quorum=quorum, sync_period=1)
    for version in range(2 * (comm.rank + 1)):
        x[:] = comm.rank + 1
        outcome = coll.allreduce(x)
        assert outcome.contributors[-1] == comm.size - 1
        # Rank r leaves after 2(r+1) versions; before that it may not be missing.
        assert set(range(version // 2, comm.size)) == set(outcome.contributors)
    coll.close()


@pytest.mark.mpi(min_size=2)
def test_a_sync_before_leaving(comm: MPI.Intracomm) -> None:
    x = np.full(3, comm.rank, np.float32)
    coll = GroupAllreduce(comm, x, group_size=comm.size, grace=0.0)
    coll.sync(x)
    coll.close(sync=True)
    assert coll.version == 2
    assert (x == np.float32((comm.size - 1) / 2)).all()


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_fails_is_named(comm: MPI.Intracomm) -> None:
    x = np.zeros(3, np.float32)
    with pytest.raises(ZeroDivisionError if comm.rank == 1 else PeerError) as caught:  # noqa: SIM117
        with PartialAllreduce(comm, x) as coll:
            coll.allreduce(x)
            if comm.rank == 1:
                raise ZeroDivisionError
            while True:
                coll.allreduce(x)
    if comm.rank != 1:
        assert "rank" in str(caught.value)
