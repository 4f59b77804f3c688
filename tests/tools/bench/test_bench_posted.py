"""Posted reductions in the benchmarks: what is measured of them, and that results are checked."""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from mpi4py import MPI

from wagma.benchmarks import environment, nonblocking
from wagma.benchmarks.measurement import Measurement, iterations_of
from wagma.benchmarks.samples import Point
from wagma.benchmarks.settings import Settings
from wagma.benchmarks.start import Start
from wagma.benchmarks.subjects import Delivered, Taken
from wagma.benchmarks.subjects.partial import WagmaAllreduce
from wagma.benchmarks.subjects.posted import PostedWagma

pytestmark = pytest.mark.mpi

SIZE = 40_000
LATENESS_S, COMPUTE_S = 0.02, 0.04

IALLREDUCE = Settings(
    "iallreduce",
    (SIZE,),
    iterations=4,
    iterations_large=4,
    warmup=2,
    warmup_large=2,
    passes=2,
    validate=True,
    baselines=("mpi-nonblocking",),
)
OVERLAP = replace(IALLREDUCE, kind="overlap", compute=COMPUTE_S, lateness=LATENESS_S)


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    comm = MPI.COMM_WORLD
    crowded = bool(environment.crowded_hosts(environment.gather(comm)))
    with Start(comm, crowded=crowded) as made:
        yield made


def measurement(settings: Settings, start: Start) -> Measurement:
    comm = MPI.COMM_WORLD
    offsets = np.zeros((1, comm.size), np.int64)
    return Measurement(settings, comm, start, SIZE, "together", offsets)


def run(settings: Settings, start: Start) -> Point:
    """The point, on all ranks."""
    comm = MPI.COMM_WORLD
    point: Point = comm.bcast(nonblocking.measure(measurement(settings, start)))
    assert (point.size, point.count) == (SIZE, SIZE // 4)
    shape = (sum(iterations_of(settings, SIZE)[0]), comm.size)
    for series in point.series:
        for part in (series.posting, series.waiting, series.computing, series.testing):
            assert part is not None
            assert part.shape == series.began.shape == series.ended.shape == shape
    return point


@pytest.mark.parametrize("form", ["in-place", "private", "out-of-place"])
def test_pure_calls_and_those_with_computing_are_of_one_series(start: Start, form: str) -> None:
    ranks = MPI.COMM_WORLD.size
    if form == "out-of-place" and ranks == 1:
        pytest.skip("needs 2 ranks: of one nobody is late")
    quorum = 1 if form == "out-of-place" else "all"
    point = run(replace(IALLREDUCE, form=form, quorum=quorum, tests=3), start)
    assert [series.name for series in point.series] == [
        f"wagma {form}",
        "MPI_Iallreduce in-place",
        "MPI_Iallreduce two-buffers",
    ]
    for series in point.series:
        assert series.pure is not None
        assert series.pure.shape == series.began.shape
        assert series.pure.min() > 0
        assert series.testing is not None
        assert series.testing.min() > 0
        assert series.delayed is None
        # To find out how long to compute, then both kinds of calls, with those before them.
        counted, before = iterations_of(IALLREDUCE, SIZE)
        calls = 2 * (sum(counted) + sum(before)) + counted[0] + before[0]
        assert series.checks.results == ranks * calls
        assert series.checks.wrong == 0


def test_computing_takes_as_long_as_it_was_asked_for(start: Start) -> None:
    for series in run(replace(IALLREDUCE, compute=0.002), start).series:
        assert series.computing is not None
        assert series.computing.min() >= 2_000_000
        assert series.testing is not None
        assert series.testing.max() == 0
        assert np.all(series.ended - series.began >= series.computing)


def test_tests_are_a_part_of_waiting(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def test(_: PostedWagma, request: object) -> None:
        asked.append(request)
        time.sleep(0.002)

    monkeypatch.setattr(PostedWagma, "test", test)
    wagma = run(replace(IALLREDUCE, compute=0.004, tests=2, baselines=()), start).series[0]
    counted, before = iterations_of(IALLREDUCE, SIZE)
    assert len(asked) == 2 * (sum(counted) + sum(before))
    assert wagma.testing is not None
    assert wagma.testing.min() >= 2 * 2_000_000
    assert np.all(wagma.waiting >= wagma.testing)


@pytest.mark.mpi(min_size=2)
def test_ranks_that_name_different_contributions_are_found(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = WagmaAllreduce.taken

    def named(self: WagmaAllreduce, delivered: Delivered) -> Taken:
        found = taken(self, delivered)
        return replace(found, named=((0, -7),)) if MPI.COMM_WORLD.rank == 0 else found

    monkeypatch.setattr(WagmaAllreduce, "taken", named)
    checks = run(replace(IALLREDUCE, baselines=()), start).series[0].checks
    assert checks.wrong == checks.results > 0
    assert "result 0: rank 1 of group" in str(checks.first_wrong)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("form", ["in-place", "private", "out-of-place"])
def test_late_posts_are_checked(start: Start, form: str) -> None:
    settings = replace(OVERLAP, quorum=1, form=form, grace=0.0, compute=0.001)
    posted, *others = run(settings, start).series
    assert posted.late.any()
    for series in (posted, *others):
        assert series.checks.wrong == 0, series.checks.first_wrong
        assert series.checks.results > 0


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(("kind", "ways"), [("iallreduce", 2), ("overlap", 3)])
def test_a_way_to_call_learns_no_grace_from_another(
    start: Start, monkeypatch: pytest.MonkeyPatch, kind: str, ways: int
) -> None:
    """Each has its own handle; where nobody is late they share one."""
    closed: list[PostedWagma] = []
    monkeypatch.setattr(PostedWagma, "close", lambda self: closed.append(self))
    settings = replace(IALLREDUCE, kind=kind, baselines=(), lateness=0.001, grace="auto")
    for quorum, handles in ((1, ways), ("all", 1)):
        closed.clear()
        run(replace(settings, quorum=quorum), start)
        assert len(closed) == handles
        for one in closed:
            WagmaAllreduce.close(one)


@pytest.mark.mpi(min_size=2)
def test_the_punctual_do_not_wait_for_who_posts_late(start: Start) -> None:
    point = run(OVERLAP, start)  # what is to be short is so for one rank once, on a busy machine
    assert (point.arrival, point.amplitude) == ("one-late:20ms", LATENESS_S)
    paid = {}  # the least and the most that one of the punctual has
    for series in point.series:
        assert series.delayed is not None
        assert series.posting is not None
        assert series.waiting is not None
        present = series.name == "wagma present"
        assert set(series.delayed.sum(axis=1)) == {0 if present else 1}
        arrivals = series.began - series.began.min(axis=1, keepdims=True)
        if present:
            assert arrivals.max(axis=1).min() < 0.5e9 * LATENESS_S
        else:
            assert np.median(arrivals[series.delayed]) > 0.5e9 * LATENESS_S
        own = (series.posting + series.waiting)[~series.delayed] * 1e-9
        paid[series.name] = float(own.min()), float(own.max())
    assert list(paid) == [
        *("wagma posted", "wagma blocking", "wagma present"),
        *("MPI_Iallreduce in-place", "MPI_Iallreduce two-buffers"),
    ]
    assert paid["wagma blocking"][1] > LATENESS_S / 2
    assert paid["wagma posted"][0] < LATENESS_S / 2


@pytest.mark.parametrize("settings", [IALLREDUCE, replace(OVERLAP, compute=0.001, lateness=0.001)])
@pytest.mark.parametrize("library", ["wagma", "mpi"])
def test_falsified_results_are_noticed(start: Start, settings: Settings, library: str) -> None:
    for series in run(replace(settings, corrupt=library), start).series:
        assert (series.checks.wrong > 0) == (series.library == library)
        if series.checks.wrong:
            assert f"{series.name}, rank {MPI.COMM_WORLD.size - 1}, result 1: 1 of 10000" in str(
                series.checks.first_wrong
            )


def test_who_is_interrupted_keeps_complete_passes(start: Start) -> None:
    comm = MPI.COMM_WORLD
    looks = iter([False] * 8)
    m = measurement(replace(IALLREDUCE, compute=0.0), start)
    point = nonblocking.measure(replace(m, interrupted=lambda: next(looks, True)))
    if comm.rank == 0:
        assert point is not None
        assert {len(series.began) for series in point.series} == {2}
    else:
        assert point is None
