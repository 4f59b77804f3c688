"""The measurement of the benchmarks: every result is checked, and wrong ones are noticed."""

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from wagma.benchmarks import _loop, environment
from wagma.benchmarks.measure import measure
from wagma.benchmarks.measurement import Measurement, iterations_of
from wagma.benchmarks.samples import Point
from wagma.benchmarks.settings import Settings, members
from wagma.benchmarks.start import Start
from wagma.benchmarks.subjects import Subject, UnavailableError
from wagma.benchmarks.subjects import check as subjects_check
from wagma.benchmarks.subjects.partial import WagmaAllreduce
from wagma.benchmarks.subjects.torch import shared_gpus
from wagma.collectives.arrays import DTYPES

pytestmark = pytest.mark.mpi

SMALL, LARGE = 24, 40_000  # bytes: looped over in C, and from Python
LATE_NS = 3_000_000  # far beyond grace, on a machine that is not too busy
LATE_FACTORS = (1, 10, 100)  # until it is late on a busy one

BASE = Settings(
    "allreduce",
    (SMALL, LARGE),
    iterations=7,
    iterations_large=5,
    warmup=2,
    warmup_large=2,
    passes=2,
    validate=True,
    grace=0.0005,
)
WAITING = replace(BASE, quorum=1)


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    comm = MPI.COMM_WORLD
    crowded = bool(environment.crowded_hosts(environment.gather(comm)))
    with Start(comm, crowded=crowded) as made:
        yield made


def together(comm: MPI.Intracomm) -> Any:
    return np.zeros((1, comm.size), np.int64)


def one_late(comm: MPI.Intracomm) -> Any:
    """Another rank in each iteration, and nobody in the last of three."""
    table = np.zeros((3, comm.size), np.int64)
    table[0, -1] = table[1, 0] = LATE_NS
    return table


def run(settings: Settings, comm: MPI.Intracomm, start: Start, size: int, offsets: Any) -> Point:
    """The point, on all ranks."""
    point: Point = comm.bcast(measure(Measurement(settings, comm, start, size, "test", offsets)))
    assert (point.size, point.count) == (size, size // DTYPES[settings.datatype].storage.itemsize)
    return point


def check(settings: Settings, point: Point, ranks: int, wrong: int = 0) -> None:
    """Everything was measured, everything was checked, and so much of it is wrong in all."""
    blocks, warmup = iterations_of(settings, point.size)
    assert point.series[0].library == "wagma"
    for series in point.series:
        assert series.began.shape == series.ended.shape == series.late.shape == (sum(blocks), ranks)
        assert (series.ended > series.began).all()
        # A call starts after every call before it has ended.
        assert (series.began[1:].min(axis=1) >= series.ended[:-1].max(axis=1)).all()
        assert series.checks.results == ranks * (sum(blocks) + sum(warmup))
    found = sum(series.checks.wrong for series in point.series)
    assert found == wrong, [series.checks.first_wrong for series in point.series]


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype(comm: MPI.Intracomm, start: Start, datatype: str) -> None:
    if datatype == "bfloat16":
        pytest.importorskip("torch")
    settings = replace(BASE, datatype=datatype)
    for size, loop in ((SMALL, "c"), (LARGE, "python")):
        point = run(settings, comm, start, size, together(comm))
        check(settings, point, comm.size)
        assert [series.loop for series in point.series] == [loop]
        assert not point.series[0].late.any()


@pytest.mark.parametrize("size", [0, 4])
def test_none_and_one_element(comm: MPI.Intracomm, start: Start, size: int) -> None:
    check(BASE, run(BASE, comm, start, size, together(comm)), comm.size)


@pytest.mark.parametrize("form", ["in-place", "private", "out-of-place"])
@pytest.mark.parametrize("late", ["stale", "skip", "carry"])
@pytest.mark.parametrize(("kind", "size"), [("allreduce", SMALL), ("group-allreduce", LARGE)])
def test_wait_avoiding_quorums(
    comm: MPI.Intracomm, start: Start, kind: str, late: str, form: str, size: int
) -> None:
    """Results hold what the calls say, with late ranks and without."""
    settings = replace(WAITING, kind=kind, late=late, form=form)
    if form == "out-of-place" and members(settings, comm.size) == 1:
        pytest.skip("a group of one is reduced in place")
    for factor in LATE_FACTORS:
        point = run(settings, comm, start, size, one_late(comm) * factor)
        check(settings, point, comm.size)
        if kind != "allreduce" or comm.size == 1 or point.series[0].late.any():
            return
    pytest.fail("nobody was late: there was nothing to see")


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_baselines_beside_it(comm: MPI.Intracomm, start: Start, size: int) -> None:
    settings = replace(
        BASE, kind="group-allreduce", baselines=("mpi", "mpi-nonblocking"), iterations=4
    )
    point = run(settings, comm, start, size, together(comm))
    check(settings, point, comm.size)
    width = members(settings, comm.size)
    groups = f"MPI_Allreduce of groups of {width}"
    names = ["MPI_Allreduce", *([groups] if width < comm.size else []), "MPI_Iallreduce"]
    forms = [f"{name} {form}" for name in names for form in ("in-place", "two-buffers")]
    assert [series.name for series in point.series] == ["wagma in-place", *forms]
    # MPI_Iallreduce cannot be called from C: what is compared with it is not, either.
    assert {series.loop for series in point.series} == {"python"}
    point = run(replace(settings, baselines=("mpi",)), comm, start, size, together(comm))
    assert {series.loop for series in point.series} == {"c" if size == SMALL else "python"}


@pytest.mark.mpi(min_size=2)
def test_torch(comm: MPI.Intracomm, start: Start) -> None:
    pytest.importorskip("torch")
    settings = replace(BASE, buffer="torch", datatype="bfloat16", baselines=("gloo",))
    point = run(settings, comm, start, SMALL, together(comm))
    check(settings, point, comm.size)
    assert [series.name for series in point.series] == ["wagma in-place", "gloo in-place"]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("settings", "size"),
    [(BASE, SMALL), (BASE, LARGE), (WAITING, SMALL), (replace(WAITING, late="skip"), LARGE)],
)
@pytest.mark.parametrize("library", ["wagma", "mpi"])
def test_a_falsified_result_is_wrong(
    comm: MPI.Intracomm, start: Start, library: str, settings: Settings, size: int
) -> None:
    """One of each series of the library: MPI's has two forms."""
    settings = replace(settings, baselines=("mpi",), corrupt=library, iterations=2)
    point = run(settings, comm, start, size, one_late(comm))
    check(settings, point, comm.size, wrong={"wagma": 1, "mpi": 2}[library])
    texts = [one.checks.first_wrong for one in point.series if one.library == library]
    assert all(f"rank {comm.size - 1}, result 1: 1 of" in str(text) for text in texts)


def test_a_result_without_a_contribution_is_wrong(
    comm: MPI.Intracomm, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the engine had left out what it says is there."""

    def reduce_less(subject: WagmaAllreduce, call: Callable[[], Any]) -> Any:
        if comm.rank == 0:
            subject.array()[...] -= 1
        return call()

    replace_calls(monkeypatch, reduce_less)
    point = run(replace(BASE, loop="python"), comm, start, SMALL, together(comm))
    assert point.series[0].checks.wrong == point.series[0].checks.results > 0


PATIENT = replace(BASE, quorum=1, grace=30.0, loop="python")  # nobody is late by itself


@pytest.mark.mpi(min_size=2)
def test_a_call_that_reduces_nothing_is_wrong(
    comm: MPI.Intracomm, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the engine told every rank that it was late, and that there was nothing newer."""

    versions = itertools.count()

    def reduce_nothing(_subject: WagmaAllreduce, _call: Callable[[], Any]) -> Any:
        return SimpleNamespace(
            version=next(versions), late=True, merged=False, contributors=(), versions=()
        )

    replace_calls(monkeypatch, reduce_nothing)
    point = run(PATIENT, comm, start, SMALL, together(comm))
    assert point.series[0].checks.wrong == point.series[0].checks.results > 0


@pytest.mark.mpi(min_size=2)
def test_ranks_that_name_different_contributions_are_wrong(
    comm: MPI.Intracomm, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if rank 0 had got a result of its own, which is right for what rank 0 says is in it."""
    before: list[Any] = []

    def reduce_for_itself(subject: WagmaAllreduce, call: Callable[[], Any]) -> Any:
        array = subject.array()
        before.append(array.copy())
        outcome = call()
        versions = list(outcome.versions)
        late = comm.rank == 0 and len(before) > 1
        if late:  # as it is with what it contributed to the version before
            array += before[-2]
            versions[0] -= 1
        return SimpleNamespace(
            version=outcome.version,
            late=late,
            merged=True,
            contributors=outcome.contributors,
            versions=versions,
        )

    replace_calls(monkeypatch, reduce_for_itself)
    checks = run(PATIENT, comm, start, SMALL, together(comm)).series[0].checks
    assert checks.wrong == checks.results - comm.size > 0
    assert "names other contributions" in str(checks.first_wrong)


def replace_calls(
    monkeypatch: pytest.MonkeyPatch, other: Callable[[WagmaAllreduce, Callable[[], Any]], Any]
) -> None:
    """What is timed of wagma becomes `other`, which is given the call that was."""
    original = WagmaAllreduce.caller
    monkeypatch.setattr(WagmaAllreduce, "caller", lambda self: partial(other, self, original(self)))


def test_nothing_is_checked_unless_asked(comm: MPI.Intracomm, start: Start) -> None:
    settings = replace(BASE, validate=False, warmup=9, loop="python")
    point = run(settings, comm, start, SMALL, together(comm))
    assert point.series[0].checks.results == 0


def test_arrivals_follow_the_pattern(
    comm: MPI.Intracomm, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th counted iteration has the n-th row, from the beginning again after the last."""
    offsets = np.arange(5 * comm.size, dtype=np.int64).reshape(5, comm.size)
    expected = [offsets[i % 5, comm.rank] for i in (-1, *range(4), 3, *range(4, 7))]
    asked: list[int] = []
    starts: list[int] = []
    wait, loop = Start.wait, _loop.run

    def waited(self: Start, arrival_ns: int = 0) -> int:
        asked.append(arrival_ns)
        starts.append(wait(self, arrival_ns))
        return starts[-1]

    def looped(*arguments: Any) -> None:
        asked.extend(arguments[4])
        loop(*arguments)
        starts.extend(arguments[5])

    monkeypatch.setattr(Start, "wait", waited)
    monkeypatch.setattr(_loop, "run", looped)
    for where in ("c", "python"):
        asked.clear()
        starts.clear()
        point = run(replace(BASE, loop=where), comm, start, SMALL, offsets)
        assert point.series[0].loop == where
        assert asked == expected
        # The times are those of the counted calls: the first and the sixth are not.
        began = point.series[0].began[:, comm.rank].tolist()
        counted = [*starts[1:5], *starts[6:]]
        after = [*starts[2:6], *starts[7:], sys.maxsize]
        assert all(a <= b < c for a, b, c in zip(counted, began, after, strict=True))


def test_blocks_alternate_in_orders_that_differ(
    comm: MPI.Intracomm, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks have the same order in each pass, and the passes different ones."""
    settings = replace(
        BASE, baselines=("mpi",), iterations=6, passes=6, warmup=0, loop="python", validate=False
    )
    called: list[str] = []
    original = Subject.ready
    monkeypatch.setattr(
        Subject, "ready", lambda self: (called.append(self.name), original(self))[1]
    )
    run(settings, comm, start, SMALL, together(comm))
    assert comm.allgather(called) == [called] * comm.size
    passes = [tuple(called[i : i + 3]) for i in range(0, 18, 3)]
    assert all(sorted(one) == sorted(passes[0]) for one in passes)
    assert len(set(passes)) > 1


def test_large_results_are_not_copied_while_others_reduce() -> None:
    settings = replace(BASE, sizes=(SMALL, 1 << 16), loop="c")
    subjects_check(settings, 2)
    larger = replace(settings, sizes=(SMALL, 1 << 17))
    subjects_check(replace(larger, validate=False), 2)
    subjects_check(replace(larger, loop="auto"), 2)
    with pytest.raises(UnavailableError, match=r"--loop c with -c: .* 131072 bytes .*; pass"):
        subjects_check(larger, 2)


def test_orders_differ_between_amplitudes(
    comm: MPI.Intracomm, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(
        BASE, baselines=("mpi",), iterations=6, passes=6, warmup=0, loop="python", validate=False
    )
    called: list[str] = []
    monkeypatch.setattr(Subject, "ready", lambda self: called.append(self.name))
    orders = []
    for amplitude in (0.0, 0.0001, 0.001):
        called.clear()
        measure(Measurement(settings, comm, start, SMALL, "test", together(comm), amplitude))
        orders.append(tuple(called))
    assert len(set(orders)) == 3


def test_there_are_as_many_uncounted_calls_as_were_asked_for() -> None:
    for warmup, expected in ((0, [0, 0, 0]), (1, [1, 0, 0]), (5, [2, 2, 1]), (6, [2, 2, 2])):
        blocks, before = iterations_of(replace(BASE, passes=3, warmup=warmup), SMALL)
        assert (blocks, before) == ([3, 2, 2], expected)


def test_interrupted_between_blocks(comm: MPI.Intracomm, start: Start) -> None:
    """What is complete of the passes is returned; None if nothing is."""
    settings = replace(BASE, iterations=9, passes=3)
    for looks, complete in ((1, 0), (2, 3), (4, 6)):
        left = [looks]

        def interrupted(left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] < 0

        m = Measurement(settings, comm, start, SMALL, "test", together(comm))
        point = measure(replace(m, interrupted=interrupted))
        if comm.rank != 0 or complete == 0:
            assert point is None
        else:
            assert point is not None
            assert point.series[0].began.shape == (complete, comm.size)


def test_nccl_needs_a_gpu_per_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = iter(("GPU-1", "GPU-2"))
    module = "wagma.benchmarks.subjects.torch.TorchGpu"
    monkeypatch.setattr(module, lambda _: SimpleNamespace(index=0))
    monkeypatch.setattr(
        "torch.cuda.get_device_properties", lambda _: SimpleNamespace(uuid=next(gpus))
    )

    def comm(*others: tuple[str, str]) -> Any:
        def gathered(own: tuple[str, str]) -> list[tuple[str, str]]:
            return [own, *(others or [own] * 3)]

        return SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 4, allgather=gathered)

    assert shared_gpus(comm()) == ("NCCL needs a GPU per rank: 4 ranks share 1; it is not measured")
    assert shared_gpus(comm(("b", "GPU-2"), ("c", "GPU-2"), ("c", "GPU-1"))) is None
