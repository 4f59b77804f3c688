"""Life cycle and misuse of a handle, outcomes, statistics."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks

from wagma.collectives import (
    Handle,
    HandleError,
    MismatchError,
    Options,
    PeerError,
    Segment,
    SegmentError,
    WagmaError,
    _engine,
)
from wagma.collectives._engine import Outcome

pytestmark = pytest.mark.alone

# ---- life cycle ----------------------------------------------------------------------------------


def test_versions_count_from_zero(x: np.ndarray) -> None:
    with Handle(Segment.create({"size": 1, "count": 3}), 0) as coll:
        for version in range(3):
            assert coll.version == version
            assert coll.allreduce(x).version == version
        assert coll.sync(x).version == 3
        assert coll.version == 4


def test_use_after_close(x: np.ndarray) -> None:
    coll = Handle(Segment.create({"size": 1, "count": 3}), 0)
    coll.allreduce(x)
    before = coll.stats()
    coll.close()
    coll.close()
    coll.fail()
    assert coll.closed
    assert coll.version == 1
    assert coll.stats() == before
    assert "closed" in repr(coll)
    for call in (coll.allreduce, coll.sync):
        with pytest.raises(HandleError, match="closed"):
            call(x)
    with pytest.raises(HandleError, match="closed"):
        coll.empty()
    with pytest.raises(HandleError, match="before"):
        coll.__init__(Segment.create({"size": 1, "count": 3}), 0)


def test_repr_names_what_matters() -> None:
    segment = Segment.create({"size": 1, "count": 6, "quorum": 1, "sync_period": 5})
    with Handle(segment, 0, shape=(2, 3), name="weights") as coll:
        text = repr(coll)
    for part in (
        "name='weights'",
        "rank=0",
        "size=1",
        "shape=(2, 3)",
        "dtype=float32",
        "group_size=1",
        "quorum='all'",
        "sync_period=5",
        "window=5",
        "version=0",
    ):
        assert part in text
    assert "segment_bytes=" in text
    assert "results_bytes" not in text


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"quorum": 0}, "'all'"),
        ({"quorum": 2}, "'all'"),
        ({"quorum": 1}, "1"),
        ({"quorum": 1, "group_size": 1}, "'all'"),
        ({"quorum": 1, "group_size": 1, "activation": 1}, "1"),
    ],
)
def test_repr_names_the_quorum(options: dict[str, float], shown: str) -> None:
    a, b = ranks.pair(**options)
    assert f"quorum={shown}, " in repr(a)
    a.close()
    b.close()


def test_repr_names_the_choices() -> None:
    choices = Options(quorum="majority", late="carry", window=3, grouping="fixed", seed=2)
    coll = Handle(Segment.create(choices.engine(1, 6, 1)), 0)
    for part in ("quorum='majority'", "late='carry'", "missed='once'", "activation='group'",
                 "grouping='fixed'", f"results_bytes={3 * 6 * 8}"):  # fmt: skip
        assert part in repr(coll)


def test_a_departed_rank_is_not_waited_for(x: np.ndarray) -> None:
    for quorum in (0, 1, 2):
        a, b = ranks.pair(quorum=quorum, sync_period=2, grace=60.0)
        a.close()
        for _ in range(4):
            outcome = b.allreduce(x)
            assert outcome.contributors == (1,)
            assert outcome.weight == 1
        b.close()


def test_close_with_sync_waits_for_the_others(x: np.ndarray) -> None:
    a, b = ranks.pair(quorum=1, grace=0.0)
    order = []

    def first() -> None:
        for _ in range(3):
            a.allreduce(x.copy())
        a.close(sync=True)
        order.append("a left")

    thread = threading.Thread(target=first)
    thread.start()
    for _ in range(3):
        b.allreduce(x)
        time.sleep(0.02)
    result = x.copy()
    order.append("b arrives")
    b.close(sync=True)
    thread.join(ranks.LIVENESS_S)
    assert order == ["b arrives", "a left"]
    assert np.array_equal(x, result)


@pytest.mark.parametrize("quorum", [0, 1])
@pytest.mark.parametrize("kept", [True, False])
def test_close_with_sync_costs_no_shared_memory(quorum: int, kept: bool) -> None:
    """It reads nothing of the rank's own array and leaves it as it was."""
    count = 100_000
    a, b = ranks.pair(count=count, quorum=quorum, grace=0.0)
    array = a.empty()
    array[:] = np.nan
    own = b.empty()
    own[:] = 3
    before = a.stats().segment_bytes
    if not kept:
        del array
    thread = threading.Thread(target=a.close, args=(True,))
    thread.start()
    outcome = b.sync(own)
    thread.join(ranks.LIVENESS_S)
    assert a.closed
    assert outcome.contributors == (1,)
    assert (own == 3).all()
    assert a.stats().segment_bytes == before
    if kept:
        assert np.isnan(array).all()


def test_an_exception_in_the_block_fails_the_rank(x: np.ndarray) -> None:
    a, b = ranks.pair()
    with pytest.raises(ZeroDivisionError), a:
        raise ZeroDivisionError
    assert a.closed
    with pytest.raises(PeerError, match="rank 0"):
        b.allreduce(x)
    with pytest.raises(HandleError):
        b.allreduce(x)


def test_a_forgotten_handle_fails_its_rank(x: np.ndarray) -> None:
    a, b = ranks.pair()
    del a
    with pytest.raises(PeerError, match="rank 0"):
        b.allreduce(x)


def test_a_cycle_of_garbage_is_collected_in_a_safe_order(x: np.ndarray) -> None:
    class Owner:
        pass

    for _ in range(20):
        owner = Owner()
        owner.coll = Handle(Segment.create({"size": 1, "count": 3}), 0)
        owner.array = owner.coll.empty()
        owner.me = owner
        owner.coll.allreduce(x)
        del owner
    __import__("gc").collect()


# ---- misuse --------------------------------------------------------------------------------------


def test_two_threads_at_once(x: np.ndarray) -> None:
    a, b = ranks.pair()
    thread = threading.Thread(target=lambda: a.allreduce(x.copy()))
    thread.start()
    deadline = time.monotonic() + ranks.LIVENESS_S
    while True:  # until the thread waits inside its call
        try:
            a.empty()
        except HandleError as error:
            assert "one thread at a time" in str(error)
            break
        assert time.monotonic() < deadline
        time.sleep(0.001)
    with pytest.raises(HandleError, match="in use"):
        a.allreduce(x)
    with pytest.raises(HandleError, match="in use"):
        a.close()
    b.allreduce(x)
    thread.join()
    a.close()
    b.close()


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_wrong_weights(x: np.ndarray, weight: float) -> None:
    with Handle(Segment.create({"size": 1, "count": 3}), 0) as coll:
        with pytest.raises(ValueError, match="weight"):
            coll.allreduce(x, weight)
        with pytest.raises(TypeError):
            coll.allreduce(x, "heavy")
        assert coll.allreduce(x).version == 0


@pytest.mark.parametrize("value", ["2", None, [1], 1j])
def test_what_is_no_number_is_named(x: np.ndarray, value: Any) -> None:
    with Handle(Segment.create({"size": 1, "count": 3}), 0, initial=x) as coll:
        for call in (coll.allreduce, coll.sync, coll.iallreduce):
            with pytest.raises(TypeError, match=r"^weight=.*: must be a number$"):
                call(x, weight=value)
        with pytest.raises(TypeError, match=r"^weight="):
            Handle(Segment.create({"size": 1, "count": 3}), 0, weight=value)
        request = coll.iallreduce(x)
        if value is not None:
            with pytest.raises(TypeError, match=r"^timeout="):
                request.wait(timeout=value)
        request.wait()


def test_fractional_weights_of_integers() -> None:
    segment = Segment.create({"size": 1, "count": 3, "dtype": 4, "average": 0})
    with Handle(segment, 0) as coll:
        x = np.ones(3, np.int32)
        with pytest.raises(TypeError, match="weight"):
            coll.allreduce(x, 0.5)
        coll.allreduce(x, 2)
        assert (x == 2).all()


@pytest.mark.parametrize("rank", [-1, 2])
def test_wrong_ranks(rank: int) -> None:
    with pytest.raises(ValueError, match="rank"):
        Handle(Segment.create({"size": 2, "count": 3}), rank)


def test_a_rank_joins_once() -> None:
    segment = Segment.create({"size": 1, "count": 3})
    with Handle(segment, 0), pytest.raises(ValueError, match="rank"):
        Handle(segment, 0)


def test_sync_at_different_versions(x: np.ndarray) -> None:
    a, b = ranks.pair(quorum=1, grace=0.0)
    a.allreduce(x)
    raised: list[BaseException] = []

    def other() -> None:
        try:
            b.sync(x.copy())
        except MismatchError as error:
            raised.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(WagmaError) as caught:
        a.sync(x)
    thread.join(ranks.LIVENESS_S)
    errors = [*raised, caught.value]
    mismatches = [error for error in errors if isinstance(error, MismatchError)]
    assert mismatches
    assert "0" in str(mismatches[0])
    assert "1" in str(mismatches[0])


def test_only_the_engine_makes_segments_and_outcomes() -> None:
    for kind in (Segment, Outcome):
        with pytest.raises(TypeError):
            kind()


def test_a_segment_of_another_name_or_other_options() -> None:
    name = f"/wagma-test-{os.getpid()}"
    with pytest.raises(SegmentError):
        Segment.open({"size": 1, "count": 3}, name)
    segment = Segment.create({"size": 1, "count": 3}, name)
    try:
        with pytest.raises(MismatchError):
            Segment.open({"size": 1, "count": 4}, name)
        other = Segment.open({"size": 1, "count": 3}, name)
        assert Path("/dev/shm", name[1:]).exists()
    finally:
        segment.unlink()
        segment.unlink()
    assert not Path("/dev/shm", name[1:]).exists()
    with Handle(other, 0, np.ones(3, np.float32)) as coll:
        coll.allreduce(np.ones(3, np.float32))


# ---- outcomes and statistics ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 16, 17, 40])
def test_outcomes_of_small_and_large_groups(size: int) -> None:
    """They keep their lists for themselves, also when others are made afterwards."""
    segment = Segment.create({"size": size, "count": 1})

    def body(rank: int) -> list[Outcome]:
        x = np.zeros(1, np.float32)
        with Handle(segment, rank, x) as coll:
            return [coll.allreduce(x, rank % 2) for _ in range(5)]

    for outcomes in ranks.thread_ranks(size, body):
        for version, outcome in enumerate(outcomes):
            assert outcome.contributors == tuple(range(1, size, 2))
            assert outcome.versions == (version,) * (size // 2)
            assert outcome.weight == size // 2
            assert outcome.version == version
            assert outcome.skipped == 0
            assert outcome.late is False
            assert outcome.merged is (size > 1)
            assert f"version={version}" in repr(outcome)


def test_outcomes_cannot_be_changed(x: np.ndarray) -> None:
    with Handle(Segment.create({"size": 1, "count": 3}), 0) as coll:
        outcome = coll.allreduce(x)
    for name in ("version", "late", "contributors", "extra"):
        with pytest.raises(AttributeError):
            setattr(outcome, name, 1)


def test_outcomes_come_from_a_free_list(x: np.ndarray) -> None:
    with Handle(Segment.create({"size": 1, "count": 3}), 0) as coll:
        first = id(coll.allreduce(x))
        assert id(coll.allreduce(x)) == first


def test_stats(x: np.ndarray) -> None:
    a, b = ranks.pair(quorum=1, grace=0.0)
    assert a.stats().calls == 0
    assert a.stats().late_share == 0
    for _ in range(4):
        a.allreduce(x)
    for _ in range(4):
        b.allreduce(x)
    assert a.stats().calls == b.stats().calls == 4
    assert a.stats().late == 0
    assert b.stats().late == 4
    assert b.stats().unmerged == 3
    assert b.stats().late_share == 1
    assert a.stats().grace == 0
    assert a.stats().segment_bytes > 0


def test_max_ranks_is_known() -> None:
    with pytest.raises(ValueError, match="size"):
        _engine.check_options({"size": _engine.MAX_RANKS + 1})
