"""The doctor on MPI ranks: facts of all, found alike by all, whatever fails on one."""

import os
from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

from wagma.doctor import gather, software
from wagma.doctor.checks import examine
from wagma.doctor.facts import Facts, Gpu, Level, Wanted
from wagma.doctor.output import render_json, render_text

pytestmark = [pytest.mark.mpi, pytest.mark.memory_only]

LIVENESS_S = 30.0
EXAMPLE = Wanted(array_bytes=1 << 20, quorum="all", given=True)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without what the tests' own runner sets."""
    for name in [name for name in os.environ if name.startswith("WAGMA_")]:
        monkeypatch.delenv(name)
    yield


def examined(comm: MPI.Intracomm) -> Facts:
    facts, rank = gather.gather(EXAMPLE, LIVENESS_S, early=lambda _: None)
    assert rank == comm.rank
    return facts


def troubles(facts: Facts) -> list[tuple[str, str]]:
    return [(f.topic, f.text) for f in examine(facts) if f.level is Level.PROBLEM]


def test_ranks_that_work_have_no_problem(comm: MPI.Intracomm) -> None:
    facts = examined(comm)
    assert troubles(facts) == []
    assert [rank.rank for rank in facts.ranks] == list(range(comm.size))
    assert [live.calls for live in facts.live] == [3] * comm.size
    assert [live.ranks for live in facts.live] == [comm.size] * comm.size
    assert facts.ranks[comm.rank].host == MPI.Get_processor_name()
    assert facts.ranks[comm.rank].mpi.size == comm.size
    assert facts.ranks[comm.rank].failed == {}
    # Either all may read each other's memory or nobody, for the same reason.
    assert len({(rank.memory.cma, rank.memory.cma_error) for rank in facts.ranks}) == 1
    assert (facts.ranks[0].memory.cma is None) == (comm.size == 1)


def test_all_ranks_find_the_same(comm: MPI.Intracomm) -> None:
    facts = examined(comm)
    findings = examine(facts)
    reports = render_json(facts, findings), render_text(facts, findings)
    assert len(set(comm.allgather(reports))) == 1


@pytest.mark.mpi(min_size=2)
def test_a_probe_that_fails_on_one_rank_is_reported(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Gpu:
        raise ValueError("broken")

    if comm.rank == 1:
        monkeypatch.setattr(software, "gpu", broken)
    facts = examined(comm)
    found = [f.text for f in examine(facts) if f.topic == "probe"]
    assert found == ["GPU could not be examined on rank 1: ValueError: broken"]
    assert [live.calls for live in facts.live] == [3] * comm.size


@pytest.mark.mpi(min_size=2)
def test_a_variable_that_reached_one_rank_only(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch
) -> None:
    if comm.rank == 1:
        monkeypatch.setenv("WAGMA_REDO_AFTER", "0.5")
    found = dict(troubles(examined(comm)))
    assert "WAGMA_REDO_AFTER differs between ranks" in found["environment"]
    assert "MismatchError" in found["trial"]


@pytest.mark.mpi(min_size=2)
def test_a_wrong_option_on_one_rank(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    if comm.rank == 1:
        monkeypatch.setenv("WAGMA_REDO_AFTER", "soon")
    facts = examined(comm)
    assert (
        "environment",
        "rank 1: WAGMA_REDO_AFTER='soon' in the environment is not a number: it sets the option "
        "redo_after; give it one, or unset WAGMA_REDO_AFTER",
    ) in (troubles(facts))
    assert {live.skipped for live in facts.live} == {"the environment has wrong options"}


@pytest.mark.mpi(min_size=2)
def test_a_trial_that_differs_on_one_rank_ends_on_all(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch
) -> None:
    if comm.rank == 1:
        monkeypatch.setattr(gather, "ELEMENTS", 7)
    ((topic, text),) = troubles(examined(comm))
    assert topic == "trial"
    assert "shape differs between ranks" in text


def test_a_wrong_sum_is_a_problem(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    original = np.empty_like

    def falsified(x: np.ndarray) -> np.ndarray:
        """An array in which sums of this rank turn out one too large."""
        return original(x).view(Falsified)

    if comm.rank == 0:
        monkeypatch.setattr(np, "empty_like", falsified)
    facts = examined(comm)
    assert "element 5 of the sum" in facts.live[0].error
    assert ("trial", Level.PROBLEM) in [(f.topic, f.level) for f in examine(facts)]


class Falsified(np.ndarray):
    """Looks at element 5 and sees one more than is there."""

    def __array_function__(self, function, types, args, kwargs):  # type: ignore[no-untyped-def]
        plain = [a.view(np.ndarray).copy() if isinstance(a, Falsified) else a for a in args]
        for before, after in zip(args, plain, strict=True):
            if isinstance(before, Falsified):
                after[5] += 1
        return function(*plain, **kwargs)


def test_a_clock_that_is_behind_is_noticed(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last rank's clock was started later; alone, it has nobody to compare with."""
    import time

    right = time.monotonic
    slow = comm.size - 1
    if comm.rank == slow and comm.size > 1:
        monkeypatch.setattr(gather.time, "monotonic", lambda: right() - 1000)
    facts = examined(comm)
    behind = [rank.clock.behind for rank in facts.ranks]
    if comm.size == 1:
        assert behind == [0.0]
    else:
        assert behind[slow] > 900
        assert behind[:slow] == [0.0] * slow
        assert [topic for topic, _ in troubles(facts)] == ["clock"]
