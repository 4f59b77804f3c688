"""Timelines of all ranks, merged: who came late, and who waited for it, on one clock."""

import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from wagma.collectives import PartialAllreduce
from wagma.trace.clocks import align
from wagma.trace.files import Event, Timeline, check_one_run, find, missing_ranks, read
from wagma.trace.merge import merge
from wagma.trace.summary import summarize

pytestmark = pytest.mark.mpi

PAUSE = 0.5  # of the late rank, when the others are about to call
VERSIONS, LATE_AT = 6, 3


@pytest.fixture
def folder(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One for all ranks, where they trace."""
    with tempfile.TemporaryDirectory() as own:  # of each rank, to be there until all are done
        chosen: Path = comm.bcast(Path(own))
        monkeypatch.setenv("WAGMA_TRACE", str(chosen))
        yield chosen
        comm.Barrier()


def load(comm: MPI.Intracomm, folder: Path) -> list[Timeline]:
    """Once all have written."""
    comm.Barrier()
    timelines = [read(path) for path in find([folder])]
    check_one_run(timelines)
    assert missing_ranks(timelines) == []
    return sorted(timelines, key=lambda each: each.rank)


def of(timeline: Timeline, kind: str, version: int | None = None) -> list[Event]:
    return [
        each for each in timeline.events if each.kind == kind and version in (None, each.version)
    ]


def train(comm: MPI.Intracomm, late: int, **options: Any) -> None:
    x = np.full(1000, comm.rank, np.float32)
    with PartialAllreduce(comm, x, name="model", **options) as coll:
        while coll.version < VERSIONS:
            if late >= 0 and coll.version == LATE_AT:
                comm.Barrier()
                if comm.rank != late:
                    comm.send(None, late)
                else:
                    for other in range(comm.size - 1):
                        comm.recv(source=other + (other >= late))
                    time.sleep(PAUSE)
            coll.allreduce(x)


@pytest.mark.mpi(min_size=2)
def test_who_was_late_and_who_waited(comm: MPI.Intracomm, folder: Path) -> None:
    late = comm.size - 1
    train(comm, late, quorum="all")
    timelines = load(comm, folder)
    offsets = align(timelines)
    error = sum(offset.error_ns or 0 for offset in offsets.values())

    def common(timeline: Timeline, ns: int) -> int:
        return ns + offsets[timeline.clock.key].ns

    (gap,) = of(timelines[late], "compute", LATE_AT)
    assert gap.duration_ns >= PAUSE * 1e9
    came = common(timelines[late], gap.ended_ns)
    for timeline in timelines[:late]:
        waits = of(timeline, "wait", LATE_AT)
        waited = sum(wait.duration_ns for wait in waits)
        (call,) = of(timeline, "call", LATE_AT)
        (arrival,) = of(timeline, "arrival", LATE_AT)
        # It went on when the late rank had come, and had waited since it came itself.
        assert common(timeline, call.ended_ns) >= came - error
        assert waited <= call.duration_ns
        assert waited >= 0.5 * (came - common(timeline, arrival.began_ns)) - error
    rows = summarize(timelines)
    assert rows[late].behind_s >= 0.5 * PAUSE / VERSIONS
    assert [row.calls for row in rows] == [VERSIONS] * comm.size
    waits = [
        each["args"]
        for each in merge(timelines)["traceEvents"]
        if each.get("cat") == "wait" and each["args"]["version"] == LATE_AT
    ]
    assert {each["last"] for each in waits if each["for"] == "quorum"} == {late}


@pytest.mark.parametrize("quorum", [1, "all"])
def test_spans_of_the_caller_nest(comm: MPI.Intracomm, folder: Path, quorum: Any) -> None:
    train(comm, comm.size // 2, quorum=quorum, sync_period=4)
    for timeline in load(comm, folder):
        assert len(of(timeline, "call")) <= VERSIONS
        assert len(of(timeline, "arrival")) == len(of(timeline, "call"))
        assert len(of(timeline, "compute")) == len(of(timeline, "call")) - 1
        for track in timeline.tracks:
            nest([each for each in timeline.events if each.span and each.track == track])


def nest(spans: Iterable[Event]) -> None:
    around: list[Event] = []
    for span in sorted(spans, key=lambda each: (each.began_ns, -each.duration_ns)):
        while around and around[-1].ended_ns <= span.began_ns:
            around.pop()
        assert not around or span.ended_ns <= around[-1].ended_ns, (around[-1], span)
        around.append(span)


def test_merged_file(comm: MPI.Intracomm, folder: Path) -> None:
    """Two handles with one name: a file each, and processes of their own."""
    for _ in range(2):
        train(comm, -1, quorum="all")
    timelines = load(comm, folder)
    assert len(timelines) == 2 * comm.size
    assert len({each.collective for each in timelines}) == 2
    merged = json.loads(json.dumps(merge(timelines)))
    assert len({each["pid"] for each in merged["traceEvents"]}) == 2 * comm.size
    assert min(each["ts"] for each in merged["traceEvents"] if "ts" in each) == 0
