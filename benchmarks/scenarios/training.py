"""Ranks that compute between their calls, as training does: jitter, and a rank that sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from wagma.collectives import PartialAllreduce
from wagma.inject import Heterogeneous, Injector, Normal, OneServer

from ..checking import Checked, Holds, taken
from ..contributions import Contributions, Vector

if TYPE_CHECKING:
    from mpi4py import MPI

    from ..start import Start
    from .plan import Training

# What a call gave: what its array holds, whether it was late, the grace in force.
Reduce = Callable[[Vector, int], tuple[Holds, bool, float]]


def _run(
    what: str, x: Vector, checked: Checked, reduce: Reduce, pauses: list[float]
) -> dict[str, list[Any]]:
    """Make one version for each pause: write, pause, call, check."""
    calls: dict[str, list[Any]] = {"samples_ns": [], "late": [], "grace": [], "behind": []}
    for version, pause in enumerate(pauses):
        checked.contributions.write(x, checked.rank, version)
        if pause > 0:
            time.sleep(pause)
        began = time.perf_counter_ns()
        holds, late, grace = reduce(x, version)
        calls["samples_ns"].append(time.perf_counter_ns() - began)
        calls["late"].append(late)
        calls["grace"].append(grace)
        calls["behind"].append(version - min(contributed for _, contributed in holds))
        checked.check(what, x, holds, late)
    return calls


def _wagma(
    what: str,
    comm: MPI.Intracomm,
    start: Start,
    bytes_: int,
    checked: Checked,
    pauses: list[float],
    **options: Any,
) -> dict[str, list[Any]]:
    first = np.empty(bytes_ // 4, np.float32)
    checked.contributions.write(first, checked.rank, -1)
    with PartialAllreduce(comm, first, quorum=1, average=False, **options) as coll:

        def reduce(x: Vector, _version: int) -> tuple[Holds, bool, float]:
            outcome = coll.allreduce(x)
            return taken(outcome, checked.rank), outcome.late, coll.stats().grace

        start.meet()
        calls = _run(what, coll.empty(), checked, reduce, pauses)
        start.meet()  # nobody departs early: the last versions are like the others
    return calls


def jitter(comm: MPI.Intracomm, start: Start, s: Training, spoil: int | None) -> dict[str, Any]:
    """grace="auto" while every rank sleeps for about `grace_step` before each version."""
    rank, size = comm.Get_rank(), comm.Get_size()
    steps = Normal(size, s.grace_step, s.grace_step * s.grace_jitter, seed=s.seed)
    checked = Checked(rank, Contributions(s.bytes // 4, terms=comm.Get_size() + 1), spoil)
    pauses = steps.table(s.grace_versions)[:, rank].tolist()
    calls = _wagma("jitter", comm, start, s.bytes, checked, pauses, window=s.window)
    return {**calls, "counts": checked.counts()}


def straggler(
    comm: MPI.Intracomm, start: Start, s: Training, spoil: int | None, with_mpi: bool
) -> dict[str, Any]:
    """The last rank only sleeps, long and once in a period; the others compute before every call.

    It is slower than they on average, so that it is never ahead of them, and falls behind by less
    than the window in the versions of one handle.
    """
    from mpi4py import MPI

    rank, size = comm.Get_rank(), comm.Get_size()
    pauses = _pauses(comm, s)
    contributions = Contributions(s.bytes // 4, terms=comm.Get_size() + 1)
    checked = Checked(rank, contributions, spoil)
    handles = [
        _wagma("straggler", comm, start, s.bytes, checked, pauses, window=s.window)
        for _ in range(s.repeats)
    ]
    report: dict[str, Any] = {
        "sleeper": rank == size - 1,
        "handles": handles,
        "counts": checked.counts(),
    }
    if with_mpi:
        everyone = Checked(rank, contributions)

        def reduce(x: Vector, version: int) -> tuple[Holds, bool, float]:
            comm.Allreduce(MPI.IN_PLACE, x)
            return [(other, version) for other in range(size)], False, 0.0

        start.meet()
        x = np.empty(s.bytes // 4, np.float32)
        report["mpi"] = _run("straggler, MPI", x, everyone, reduce, pauses)
        report["mpi"]["counts"] = everyone.counts()
    return report


def straggler_over_mpi(
    comm: MPI.Intracomm, start: Start, s: Training, spoil: int | None
) -> dict[str, Any]:
    """Measure over messages, first without a sleeper: all ranks compute equally long."""
    rank, size = comm.Get_rank(), comm.Get_size()
    checked = Checked(rank, Contributions(s.bytes // 4, terms=size + 1), spoil)

    def calls(pauses: list[float]) -> dict[str, list[Any]]:
        return _wagma(
            *("straggler over MPI", comm, start, s.bytes, checked, pauses),
            window=s.window,
            transport="mpi",
        )

    present = calls([s.step] * s.versions)
    handles = [calls(_pauses(comm, s)) for _ in range(s.repeats)]
    return {
        "sleeper": rank == size - 1,
        "present": present,
        "handles": handles,
        "counts": checked.counts(),
    }


def _pauses(comm: MPI.Intracomm, s: Training) -> list[float]:
    """Return this rank's pauses before each version: the last rank sleeps, the others compute."""
    size = comm.Get_size()
    steps = Heterogeneous(size, s.step, (1,) * (size - 1) + (0,))
    imbalance = Injector(size, (steps, OneServer(size, size - 1, s.sleep, s.period)))
    pauses: list[float] = imbalance.table(s.versions)[:, comm.Get_rank()].tolist()
    return pauses
