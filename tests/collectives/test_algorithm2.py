"""The collective beside an independent model of Algorithm 2, call by call and bit by bit.

One thread makes the calls of all ranks in an order that a script decides: with a quorum of one and
no grace a call waits for nobody, except in versions that synchronise, which all ranks call at once.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import ranks
from algorithm2 import Expected, Model, Vector, arrivals, group_of

from wagma.collectives import Handle, Options, Outcome, Segment

RATE = 0.3


def handles(size: int, initial: list[Vector], **options: Any) -> list[Handle]:
    engine = Options(**options).engine(size, initial[0].size, 1)
    segment = Segment.create(engine)
    made: list[Handle] = ranks.thread_ranks(size, lambda r: Handle(segment, r, initial[r]))
    return made


def own_step(rank: int, version: int, model: Vector) -> Vector:
    """Pulls each rank to a point of its own, with noise: no two models are alike."""
    noise = np.random.default_rng((rank, version)).normal(size=model.shape)
    return np.asarray(model - RATE * (model - rank) + noise)


def agrees(expected: Expected, outcome: Outcome, model: Vector, coll: Handle) -> None:
    got = (outcome.version, outcome.late, outcome.merged, outcome.skipped, outcome.weight)
    where = f"rank {coll.rank}: {outcome}"
    assert got == (
        expected.version,
        expected.late,
        expected.merged,
        expected.skipped,
        expected.weight,
    ), where
    assert (outcome.contributors, outcome.versions) == (expected.contributors, expected.versions), (
        where
    )
    assert model.tobytes() == expected.model.tobytes(), where


def play(size: int, group_size: int, steps: int, seed: int, count: int, **options: Any) -> Counter:
    """Trains beside the model; returns how often what happened."""
    models = [np.random.default_rng((7, rank)).normal(size=count) for rank in range(size)]
    colls = handles(size, models, group_size=group_size, quorum=1, grace=0, **options)
    period = options.get("sync_period")
    model = Model(
        [x.copy() for x in models],
        group_size,
        period=period,
        activation=options["activation"],
        fixed=options.get("grouping") == "fixed",
        fast_forward=options.get("missed") == "fast-forward",
        window=options.get("window") or period or 64,
    )
    seen: Counter[str] = Counter()
    with ThreadPoolExecutor(size) as pool:
        for rank in arrivals(model, steps, seed):
            everyone = range(size) if rank is None else [rank]
            for r in everyone:
                assert colls[r].version == model.version[r]
                models[r][:] = own_step(r, model.version[r], models[r])
            if rank is None:
                expected = model.synchronise([x.copy() for x in models])
                outcomes = pool.map(lambda c: c.allreduce(models[c.rank]), colls, timeout=60)
                for r, outcome in enumerate(outcomes):
                    agrees(expected[r], outcome, models[r], colls[r])
                seen["sync"] += 1
                continue
            one = model.call(rank, models[rank].copy())
            outcome = colls[rank].allreduce(models[rank])
            agrees(one, outcome, models[rank], colls[rank])
            seen["fresh" if not one.late else "late" if one.merged else "unmerged"] += 1
            seen["skipped"] += one.skipped
            # What only activation by the world can give: nobody of the group is fresh.
            seen["all stale"] += one.merged and max(one.versions) < one.version
    for coll in colls:
        assert coll.version == steps
        coll.close()
    return seen


def test_the_models_groups_are_the_papers() -> None:
    assert [group_of(0, 8, 4, t) for t in (0, 1)] == [(0, 1, 2, 3), (0, 1, 4, 5)]
    assert [group_of(2, 8, 4, t) for t in (0, 1)] == [(0, 1, 2, 3), (2, 3, 6, 7)]


@pytest.mark.parametrize("seed", range(3))
def test_algorithm_2_to_the_bit(seed: int) -> None:
    """P=8, S=4, tau=10, 200 versions; the first of all ranks starts a version for all groups."""
    seen = play(8, 4, 200, seed, count=37, activation="world", sync_period=10)
    assert seen["sync"] == 20
    assert min(seen[kind] for kind in ("fresh", "late", "unmerged", "all stale")) > 50


@pytest.mark.parametrize("activation", ["world", "group"])
@pytest.mark.parametrize("missed", ["once", "fast-forward"])
@pytest.mark.parametrize("grouping", ["dynamic", "fixed"])
@pytest.mark.parametrize(("size", "group_size"), [(8, 4), (8, 2), (4, 2)])
def test_scripted_arrivals(
    size: int, group_size: int, grouping: str, missed: str, activation: str
) -> None:
    """Check the other choices, without versions that synchronise."""
    for period, window in ((10, None), (None, 5)):
        seen = play(
            size,
            group_size,
            60,
            seed=1,
            count=5,
            activation=activation,
            missed=missed,
            grouping=grouping,
            sync_period=period,
            window=window,
        )
        assert seen["late"] > 20
        assert (seen["unmerged"] > 0) == (missed == "once")
        assert (seen["skipped"] > 0) == (missed == "fast-forward")


@pytest.mark.parametrize("missed", ["once", "fast-forward"])
@pytest.mark.parametrize("activation", ["world", "group"])
def test_groups_of_one(activation: str, missed: str) -> None:
    """They average nothing, whoever starts their versions."""
    ahead, behind = handles(
        2, [np.zeros(3)] * 2, group_size=1, quorum=1, activation=activation, missed=missed, grace=0
    )
    for coll in (ahead, ahead, ahead, behind, ahead, behind, behind, behind):
        x = np.full(3, coll.version + 7.0)
        before = coll.version
        outcome = coll.allreduce(x)
        assert (x == before + 7).all()
        assert (outcome.version, outcome.weight) == (before, 1)
        assert outcome.skipped == 0 or outcome.late
        assert coll.version == before + 1 + outcome.skipped


def test_large_models() -> None:
    """Several slices, each of which anybody may have reduced."""
    play(4, 2, 30, seed=5, count=100_003, activation="world", sync_period=10)


def test_the_papers_example() -> None:
    """Ranks 0, 2 and 3 have arrived when a version starts, rank 1 is late with 17 published.

    The first three start the version together (quorum=3); then rank 1 comes.
    """
    published = [10.0, 17.0, 30.0, 40.0]
    models = [np.array([m]) for m in (10.0 + 1, 20.0 + 2, 30.0 + 3, 40.0 + 4)]
    colls = handles(
        4, [np.array([m]) for m in published], group_size=2, quorum=3, activation="world", grace=0
    )
    with ThreadPoolExecutor(3) as pool:
        early = list(pool.map(lambda r: colls[r].allreduce(models[r]), (0, 2, 3), timeout=60))
    late = colls[1].allreduce(models[1])
    assert [outcome.late for outcome in early] == [False] * 3
    assert [outcome.contributors for outcome in early] == [(0, 1), (2, 3), (2, 3)]
    assert [outcome.versions for outcome in early] == [(0, -1), (0, 0), (0, 0)]
    assert (late.late, late.merged, late.weight, late.versions) == (True, True, 3.0, (0, -1))
    assert [model[0] for model in models] == [14.0, 50 / 3, 77 / 2, 77 / 2]
