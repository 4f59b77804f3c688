"""Large arrays that are not of `empty()`, with quorum="all": how they pass, as Python sees it."""

import ctypes
import os

import numpy as np
import pytest
from ranks import thread_ranks

from wagma.collectives import Handle, Segment, Stats
from wagma.doctor.gather import _pid_namespace, _read

COUNT = 30_011  # float32: several chunks, and no multiple of anything
CALLS = 40  # one in 32 goes the way that is not the faster one


def called(size: int) -> tuple[list[Stats], list[str]]:
    """Makes a handle, calls it with numpy arrays; counters and repr of every rank."""
    segment = Segment.create({"size": size, "count": COUNT})

    def body(rank: int) -> tuple[Stats, str]:
        with Handle(segment, rank) as coll:
            assert coll.stats().private is None
            assert "private=None" in repr(coll)
            for version in range(CALLS):
                x = np.full(COUNT, rank + version, np.float32)
                coll.allreduce(x)
                assert (x == (size - 1) / 2 + version).all()
            return coll.stats(), repr(coll)

    both = thread_ranks(size, body)
    return [stats for stats, _ in both], [text for _, text in both]


def refusal() -> str:
    """Why this system does not let memory be read so, as some sandboxes; empty: it does."""
    there = ctypes.create_string_buffer(b"there")
    return _read(_pid_namespace(), os.getpid(), ctypes.addressof(there), there.value.decode())


def test_an_id_of_another_namespace_is_not_tried() -> None:
    there = ctypes.create_string_buffer(b"there")
    where = (os.getpid(), ctypes.addressof(there), there.value.decode())
    assert "different containers" in _read(_pid_namespace() + 1, *where)


@pytest.mark.skipif(bool(refusal()), reason=f"process_vm_readv: {refusal()}")
@pytest.mark.parametrize("size", [2, 3])
def test_they_are_read_where_that_is_allowed_and_faster(size: int) -> None:
    everybody, texts = called(size)
    for stats, text in zip(everybody, texts, strict=True):
        assert stats.private in ("chunks", "read")
        assert f"private={stats.private!r}, " in text
        assert 0 < stats.direct < CALLS  # the first one cannot know; others do not depend on time
        assert stats.direct == everybody[0].direct


def test_reading_can_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAGMA_CMA", "0")
    everybody, texts = called(2)
    assert [(stats.private, stats.direct) for stats in everybody] == [("chunks", 0)] * 2
    assert all("private='chunks', " in text for text in texts)


def test_of_empty_they_are_nothing_of_the_kind() -> None:
    segment = Segment.create({"size": 2, "count": COUNT})

    def body(rank: int) -> Stats:
        with Handle(segment, rank) as coll:
            x = coll.empty()
            x[:] = rank
            coll.allreduce(x)
            assert (x == 0.5).all()
            return coll.stats()

    assert [(stats.private, stats.direct) for stats in thread_ranks(2, body)] == [(None, 0)] * 2
