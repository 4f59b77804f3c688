"""Counters of all ranks: gathered at sync versions, and the summary that says who is slow."""

import mmap
import time
from typing import Any

import numpy as np
import pytest
import ranks

from wagma.collectives import Handle, RankStats, Segment, Stats


def entry(rank: int, compute: float, **fields: Any) -> RankStats:
    """A rank that computes `compute` seconds in each of its 100 calls."""
    values: dict[str, Any] = {
        "version": 100,
        "departed": False,
        "calls": 100,
        "late": 0,
        "unmerged": 0,
        "used": 100,
        "staleness": 0,
        "staleness_max": 0,
        "waited": 0.0,
        "compute_median": compute,
        "behind": 0.0,
    }
    values.update(fields)
    return RankStats(rank=rank, compute=compute * values["calls"], **values)


def stats(*gathered: RankStats) -> Stats:
    return Stats(100, 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0, None, None, "host", gathered)


def meet(a: Handle, b: Handle) -> None:
    """Both take a sync version."""
    x = np.zeros(3, np.float32)
    ranks.thread_ranks(2, lambda rank: (a, b)[rank].sync(x.copy()))


# ---- the summary ---------------------------------------------------------------------------------


def test_the_slow_rank_is_named() -> None:
    slow = stats(entry(0, 0.010), entry(1, 0.021), entry(2, 0.0101), entry(3, 0.0099))
    assert slow.slow == (1,)
    text = slow.summary()
    assert "4 ranks at sync version 100" in text
    assert "the median one computes 10.0 ms per call" in text
    assert "Slow: rank 1 (2.10x)." in text
    rows = [line.split() for line in text.splitlines()[2:]]
    assert [row[0] for row in rows] == ["1", "2", "0", "3"]
    assert rows[0][4:7] == ["21.0", "ms", "2.10x"]


def test_the_slowest_comes_first() -> None:
    assert stats(*(entry(r, 0.01 * (1 + (r in (2, 5)) * r)) for r in range(8))).slow == (5, 2)


def test_the_slower_of_two_is_slow() -> None:
    assert stats(entry(0, 0.02), entry(1, 0.01)).slow == (0,)


def test_equal_ranks_are_not_slow() -> None:
    even = stats(entry(0, 0.010), entry(1, 0.0124), entry(2, 0.009))
    assert even.slow == ()
    assert "No rank is slow." in even.summary()


def test_small_differences_are_not_slow() -> None:
    """Five times as much of nothing is nothing."""
    assert stats(entry(0, 5e-6), entry(1, 25e-6), entry(2, 5e-6)).slow == ()


def test_rare_stops_count() -> None:
    """A rank that is slow now and then is slow, although its median is like that of others."""
    bursts = entry(1, 0.02, compute_median=0.01)
    assert stats(entry(0, 0.01), bursts, entry(2, 0.01)).slow == (1,)


def test_columns() -> None:
    row = entry(0, 0.0025, calls=8, late=2, used=4, staleness=6, waited=0.75, behind=1234.5)
    assert (row.late_share, row.staleness_mean, row.compute_mean) == (0.25, 1.5, 0.0025)
    text = stats(row).summary().splitlines()[-1]
    assert " ".join(text.split()) == "0 8 25.0% 1.50 2.50 ms 1.00x 750 ms 1234 s"


def test_departed_ranks_are_neither_slow_nor_the_measure() -> None:
    gone = [entry(r, 1.0, departed=True, version=3, calls=3) for r in (1, 2, 3)]
    some = stats(entry(0, 0.01), *gone, entry(4, 0.03))
    assert some.slow == (4,)
    text = some.summary()
    assert "2 ranks at sync version 100" in text
    rows = text.splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["4", "0", "1", "2", "3"]
    assert [row.endswith("departed") for row in rows] == [False, False, True, True, True]


def test_one_rank_without_calls() -> None:
    alone = stats(entry(0, 0.0, calls=0, used=0, version=0))
    assert alone.slow == ()
    row = alone.ranks[0]
    assert (row.late_share, row.staleness_mean, row.compute_mean) == (0.0, 0.0, 0.0)
    assert alone.summary().splitlines()[-1].split()[-5:-4] == ["-"]


def test_many_ranks_are_shown_in_short() -> None:
    many = stats(*(entry(r, 0.01 + 0.01 * (r % 3 == 0)) for r in range(64)))
    assert many.slow == tuple(range(0, 64, 3))
    lines = many.summary().splitlines()
    assert lines[0].endswith("rank 21 (2.00x) and 14 more.")
    assert [line.split()[0] for line in lines[2:-1]] == [str(r) for r in range(0, 24, 3)]
    assert lines[-1] == "and 56 ranks with less compute, or departed"
    assert max(map(len, lines[1:])) <= 80


# ---- the handle ----------------------------------------------------------------------------------


@pytest.mark.parametrize("quorum", [1, 2])
def test_gathered_at_sync_versions(quorum: int) -> None:
    a, b = ranks.pair(quorum=quorum, grace=0.0)
    assert a.stats().ranks == ()
    assert "before the first sync" in a.stats().summary()
    meet(a, b)
    first = a.stats().ranks
    assert [(row.rank, row.calls, row.version) for row in first] == [(0, 0, 0), (1, 0, 0)]
    assert b.stats().ranks == first
    x = np.zeros(3, np.float32)
    if quorum == 1:
        for handle in (a, b):
            for _ in range(3):
                handle.allreduce(x)
        assert a.stats().ranks == first
    else:
        ranks.thread_ranks(2, lambda r: [(a, b)[r].allreduce(x.copy()) for _ in range(3)])
    meet(a, b)
    second = a.stats().ranks
    assert b.stats().ranks == second
    assert [(row.calls, row.version) for row in second] == [(4, 4), (4, 4)]
    # rank 1's contribution to the version 3 that it merged was that of version 0
    late = (3, 2, 3) if quorum == 1 else (0, 0, 0)
    assert (second[1].late, second[1].unmerged, second[1].staleness) == late
    assert (second[0].late, second[0].staleness) == (0, 0)
    assert all(row.compute > 0 for row in second)


def test_they_outlive_the_handle() -> None:
    a, b = ranks.pair(quorum=1)
    ranks.thread_ranks(2, lambda rank: (a, b)[rank].close(sync=True))
    assert len(a.stats().ranks) == 2
    assert a.stats().ranks == b.stats().ranks
    assert not any(row.departed for row in a.stats().ranks)


def test_departed_ranks_keep_their_last() -> None:
    a, b = ranks.pair(quorum=1, grace=0.0)
    x = np.zeros(3, np.float32)
    for _ in range(3):
        b.allreduce(x)
    b.close()
    assert b.stats().ranks == ()
    for _ in range(3):
        a.allreduce(x)
    for version in (3, 5, 7):
        a.sync(x)
        gone, here = a.stats().ranks[1], a.stats().ranks[0]
        assert (gone.departed, gone.calls, gone.version) == (True, 3, 3)
        assert (here.departed, here.calls, here.version) == (False, version, version)
        a.allreduce(x)


def test_a_fresh_handle_of_one_rank() -> None:
    with Handle(Segment.create({"size": 1, "count": 3, "sync_period": 1}), 0) as coll:
        coll.allreduce(np.zeros(3, np.float32))
        assert [row.calls for row in coll.stats().ranks] == [0]
        assert "No rank is slow." in coll.stats().summary()


def test_a_slow_process_is_named() -> None:
    spent = np.frombuffer(mmap.mmap(-1, 3 * 8))  # seconds of the others, once all are spent

    def body(rank: int, segment: Segment, _: Any) -> Any:
        x = np.zeros(3, np.float32)
        with Handle(segment, rank) as coll:
            began = time.monotonic()
            for call in range(6):
                time.sleep(0.1 if rank == 1 else 0.004)
                while rank == 1 and call == 5 and not spent[::2].all():
                    time.sleep(0.001)
                if rank == 1 and call == 5:  # slower, however long a busy machine stopped others
                    time.sleep(2 * spent.max())
                coll.allreduce(x)
            spent[rank] = time.monotonic() - began
            coll.close(sync=True)
            return coll.stats()

    with ranks.ForkedRanks({"size": 3, "count": 3, "quorum": 1}, body) as team:
        results = [team.result(rank) for rank in range(3)]
    assert results[0].ranks == results[1].ranks == results[2].ranks
    assert results[0].slow[:1] == (1,)
    assert "Slow: rank 1 (" in results[0].summary()
