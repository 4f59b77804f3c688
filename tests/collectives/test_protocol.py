"""Invariants over ranks that are threads of one process, for all small sizes and group sizes."""

import random

import numpy as np
import pytest
import ranks
import versioned

from wagma.collectives import Handle, Segment


def collect(plan: versioned.Plan, steps: int, delay: object = None, **options: object) -> dict:
    segment = Segment.create(
        {
            "size": plan.size,
            "group_size": plan.group_size,
            "quorum": plan.quorum,
            "count": plan.count,
            "average": plan.average,
            "sync_period": plan.sync_period or 0,
            "window": plan.window,
            **options,
        }
    )

    def body(rank: int) -> list[versioned.Call]:
        x = plan.contribution(rank, -1)
        with Handle(segment, rank, x) as coll:
            return versioned.run(plan, rank, coll, x, steps, delay=delay)

    return versioned.check(plan, ranks.thread_ranks(plan.size, body))


def uneven(rng: random.Random) -> float:
    """Mostly nothing, now and then long enough to miss versions."""
    return rng.choice((0.0, 0.0, 0.0, 0.0005, 0.003))


SIZES = [(size, group) for size in range(1, 9) for group in range(1, size + 1)]


@pytest.mark.parametrize(("size", "group_size"), SIZES)
def test_wait_avoiding(size: int, group_size: int) -> None:
    plan = versioned.Plan(size, group_size, quorum=1, sync_period=7, window=7)
    seen = collect(plan, 30, uneven, grace=0.0)
    assert seen["calls"] == size * 31
    if group_size > 1:
        assert seen["late"] > 0
        assert seen["agreements"] > 0


@pytest.mark.parametrize(("size", "group_size"), SIZES)
def test_all(size: int, group_size: int) -> None:
    plan = versioned.Plan(size, group_size, quorum=group_size, sync_period=7, window=7)
    seen = collect(plan, 20, uneven)
    assert seen["late"] == 0


@pytest.mark.parametrize("quorum", [2, 3])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_quorums_and_weights(quorum: int, average: bool, weights: bool) -> None:
    plan = versioned.Plan(8, 4, quorum, None, 12, average, weights)
    seen = collect(plan, 40, uneven, grace=0.0)
    assert seen["late"] > 0


def test_large_arrays_are_never_torn() -> None:
    plan = versioned.Plan(4, 4, quorum=1, window=5, slot=20_011, noise=3)
    seen = collect(plan, 25, uneven, grace=0.0)
    assert seen["late"] > 0


def test_grace_holds_a_version_open() -> None:
    """Everyone is ready within the grace, so nobody is late."""
    plan = versioned.Plan(3, 3, quorum=1, sync_period=5, window=5)
    seen = collect(plan, 25, lambda rng: rng.random() * 0.002, grace=30.0)
    assert seen["late"] == 0


@pytest.mark.parametrize("count", [0, 1, 3, 2**20 + 1])
@pytest.mark.parametrize("quorum", [1, 3])
def test_counts(count: int, quorum: int) -> None:
    segment = Segment.create({"size": 3, "count": count, "quorum": quorum, "sync_period": 2})

    def body(rank: int) -> None:
        x = np.full(count, rank + 1, np.float32)
        with Handle(segment, rank, x) as coll:
            for _ in range(2):
                x[:] = rank + 1
                outcome = coll.allreduce(x)
            assert outcome.contributors == (0, 1, 2)
            assert (x == 2).all()

    ranks.thread_ranks(3, body)


@pytest.mark.parametrize(
    ("dtype", "code"), [("float32", 0), ("float64", 1), ("float16", 2), ("int32", 4), ("int64", 5)]
)
@pytest.mark.parametrize("quorum", [1, 4])
def test_dtypes(dtype: str, code: int, quorum: int) -> None:
    """Sums that every dtype holds exactly."""
    segment = Segment.create(
        {"size": 4, "count": 33, "quorum": quorum, "dtype": code, "average": 0, "sync_period": 1}
    )
    expected = sum((rank + 1) * np.arange(33) for rank in range(4))

    def body(rank: int) -> None:
        x = (np.arange(33) * (rank + 1)).astype(dtype)
        with Handle(segment, rank, x) as coll:
            outcome = coll.allreduce(x)
        assert outcome.weight == 4
        assert x.dtype == dtype
        assert (x == expected).all()

    ranks.thread_ranks(4, body)


def test_late_rank_of_the_paper() -> None:
    """P=4, S=2: rank 1 is late with 17 as its last contribution; the next models are known."""
    models = {0: 11.0, 1: 22.0, 2: 33.0, 3: 44.0}
    expected = {0: 14.0, 1: 50 / 3, 2: 77 / 2, 3: 77 / 2}
    segment = Segment.create({"size": 4, "group_size": 2, "count": 1, "quorum": 1, "grace": 1.0,
                              "dtype": 1})  # fmt: skip
    arrived = ranks.threading.Event()

    def body(rank: int) -> None:
        x = np.array([17.0 if rank == 1 else 0.0])
        with Handle(segment, rank, x) as coll:
            x[0] = models[rank]
            if rank == 1:
                assert arrived.wait(ranks.LIVENESS_S)
            outcome = coll.allreduce(x)
            if rank == 0:
                arrived.set()
            assert outcome.late == (rank == 1)
            assert x[0] == pytest.approx(expected[rank], rel=1e-15)

    ranks.thread_ranks(4, body)
