"""late="skip" and "carry" beside an independent model, call by call and bit by bit.

One thread makes the calls of all ranks in an order that a script decides. Who arrives before the
quorum has a request pending; who arrives after it returns at once.
"""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import ranks
from increments import Expected, Model

from wagma.collectives import Handle, Options, Outcome, Segment, StallError


def handles(size: int, count: int, **options: Any) -> list[Handle]:
    segment = Segment.create(Options(**options).engine(size, count, 1))
    made: list[Handle] = ranks.thread_ranks(size, lambda rank: Handle(segment, rank))
    return made


def agrees(expected: Expected, outcome: Outcome, x: np.ndarray, coll: Handle) -> None:
    where = f"rank {coll.rank}: {outcome}, expected {expected}"
    assert (outcome.version, outcome.late, outcome.weight, outcome.contributors) == (
        expected.version,
        expected.late,
        expected.weight,
        expected.contributors,
    ), where
    newest = expected.version + len(expected.results) - 1
    assert outcome.versions == (newest,) * len(expected.contributors), where
    assert coll.version == newest + 1, where
    assert len(outcome.results) == len(expected.results), where
    for given, wanted in zip(outcome.results, expected.results, strict=True):
        assert given.tobytes() == wanted.tobytes(), where
    assert x.tobytes() == expected.results[-1].tobytes(), where


def play(size: int, quorum: int, late: str, steps: int, count: int, **options: Any) -> Counter:
    """Runs beside the model; returns how often what happened."""
    colls = handles(size, count, quorum=quorum, late=late, grace=0, **options)
    period, window = options.get("sync_period"), options.get("window", 8)
    model = Model(size, quorum, carry=late == "carry", period=period, window=window)
    rng = random.Random(size)
    speed = [1.0] * size
    arrays = [np.zeros(count) for _ in range(size)]
    pending: dict[int, Any] = {}
    seen: Counter[str] = Counter()
    while True:
        if rng.random() < 0.02:
            speed = [rng.choice((1.0, 5.0, 30.0)) for _ in speed]
        free = [
            r
            for r in range(size)
            if r not in pending and model.version[r] < steps and not model.waits(r)
        ]
        if not free:
            break
        rank = rng.choices(free, [speed[r] for r in free])[0]
        x = arrays[rank]
        x[:] = np.random.default_rng((rank, model.version[rank])).normal(size=count)
        returned = model.arrive(rank, x.copy())
        if returned and returned[0][1].late:
            agrees(returned[0][1], colls[rank].allreduce(x), x, colls[rank])
            seen["late"] += 1
            seen["at once"] += len(returned[0][1].results) > 1
            continue
        pending[rank] = colls[rank].iallreduce(x)
        for fresh, expected in returned:
            outcome = pending.pop(fresh).test()
            assert outcome is not None, f"rank {fresh} still waits for version {expected.version}"
            agrees(expected, outcome, arrays[fresh], colls[fresh])
            seen["fresh"] += 1
        for waiting in pending.values():
            assert waiting.test() is None
    assert not pending
    assert model.version == [steps] * size
    seen["carrying"] = sum(carried is not None for carried in model.carried)
    for coll in colls:
        coll.close()
    return seen


@pytest.mark.parametrize("late", ["skip", "carry"])
@pytest.mark.parametrize(("size", "quorum"), [(2, 1), (4, 1), (4, 2), (4, 3), (8, 3), (5, 5)])
@pytest.mark.parametrize(("period", "window"), [(10, 8), (None, 3)])
def test_scripted_arrivals(
    size: int, quorum: int, late: str, period: int | None, window: int
) -> None:
    seen = play(size, quorum, late, 100, 7, sync_period=period, window=window)
    if quorum < size:
        assert seen["fresh"] >= 100
        assert seen["late"] > 20
        assert seen["at once"] > 5
    assert (seen["carrying"] > 0) == (late == "carry" and quorum < size and period is None)


@pytest.mark.parametrize("late", ["skip", "carry"])
def test_large_increments(late: str) -> None:
    """Several slices, each of which anybody may have reduced."""
    assert play(4, 2, late, 20, 100_003)["late"] > 5


# ---- the window ----------------------------------------------------------------------------------


@pytest.mark.parametrize("late", ["skip", "carry"])
def test_the_window_closes(late: str) -> None:
    """A rank that does not fetch its results keeps the others, who say for whom they wait."""
    ahead, behind = handles(2, 3, quorum=1, late=late, window=4, grace=0, timeout=2.7)
    x = np.ones(3)
    for _ in range(4):
        ahead.allreduce(x)
    with pytest.raises(StallError, match="for rank 1,"):
        ahead.allreduce(x)
    behind.fail()


# ---- a drawn rank starts -------------------------------------------------------------------------


def drawn(size: int, steps: int, order: int, **options: Any) -> list[int]:
    """The rank without which each version does not start, whatever the order of arrival."""
    colls = handles(size, 1, quorum="majority", grace=0, **options)
    rng = random.Random(order)
    found = []
    arrays = [np.zeros(1) for _ in range(size)]
    for _ in range(steps):
        pending: list[tuple[int, Any]] = []
        arrivals = rng.sample(range(size), size)
        for place, rank in enumerate(arrivals):
            if len(found) == colls[rank].version:
                pending.append((rank, colls[rank].iallreduce(arrays[rank])))
                if pending[0][1].test() is not None:
                    found.append(rank)
                    for _, request in pending[1:]:
                        assert request.test() is not None
            else:  # the drawn one came before
                assert place > 0
                assert colls[rank].allreduce(arrays[rank]).late
    for coll in colls:
        coll.close()
    return found


@pytest.mark.parametrize("late", ["stale", "skip", "carry"])
def test_majority_draws_a_rank(late: str) -> None:
    """All ranks draw the same rank, by seed and version alone, and each rank about as often."""
    first = drawn(4, 200, order=1, late=late, seed=1)
    assert drawn(4, 200, order=2, late=late, seed=1) == first
    assert drawn(4, 200, order=1, late=late, seed=2) != first
    assert len(first) == 200
    assert all(25 <= first.count(rank) <= 75 for rank in range(4))


def test_a_departed_rank_is_not_drawn() -> None:
    colls = handles(3, 1, quorum="majority", grace=0, late="stale")
    colls[1].close()
    x = np.zeros(1)
    for _ in range(30):
        requests = [colls[0].iallreduce(x), colls[2].iallreduce(np.zeros(1))]
        for request in requests:
            assert request.test() is not None
