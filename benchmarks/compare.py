"""Times wagma and MPI_Allreduce beside each other, in the same processes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from contributions import Contributions, Vector
from plan import Case

from wagma.collectives import PartialAllreduce

if TYPE_CHECKING:
    from mpi4py import MPI
    from startline import StartLine

__all__ = ["Checked", "measure", "taken"]

GRACE = 0.1  # seconds: long enough for nobody to be late


def taken(outcome: Any, rank: int) -> list[tuple[int, int]]:
    """Whose contributions (rank, version) the array of a call of wagma holds, average=False."""
    if not outcome.merged:
        return [(rank, outcome.version)]
    holds = list(zip(outcome.contributors, outcome.versions, strict=True))
    if outcome.late:
        holds.append((rank, outcome.version))
    return holds


@dataclass
class Checked:
    """Counts results, wrong ones and late ones; `spoil` is the result to falsify, if any."""

    rank: int
    contributions: Contributions
    spoil: int | None = None
    results: int = 0
    wrong: int = 0
    late: int = 0
    first_wrong: str | None = None

    def check(self, what: str, x: Vector, holds: list[tuple[int, int]], late: bool = False) -> None:
        """Compares `x` with the sum of what it should hold, by (rank, version)."""
        if self.results == self.spoil:
            x = x.copy()  # it may be read-only, or be looked at by others
            x[x.size // 2] += 1
        elements = self.contributions.wrong(x, holds)
        if elements and self.first_wrong is None:
            self.first_wrong = (
                f"{what}, rank {self.rank}, result {self.results}: {elements} of {x.size} elements "
                f"are not the sum of (rank, version) {holds}"
            )
        self.results += 1
        self.wrong += elements > 0
        self.late += late

    def superseded(self) -> None:
        """Counts a late call that gave no result, because the rank had got a newer one before."""
        self.results += 1
        self.late += 1

    def counts(self) -> dict[str, Any]:
        """For the report."""
        return {
            "results": self.results,
            "wrong": self.wrong,
            "late": self.late,
            "first_wrong": self.first_wrong,
        }


@dataclass
class Series:
    """Repeated calls of one kind: `call(*arguments)` reduces `source` into `result`.

    With `next_source`, out of place: every call takes a new source, and its outcome has the result.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    source: Vector
    result: Vector
    checked: Checked
    size: int
    next_source: Callable[[], Vector] | None = None
    version: int = 0
    samples: list[int] = field(default_factory=list)  # ns

    def iterate(self, line: StartLine, counted: bool) -> None:
        """Rewrites the input, starts together with the others, and checks the result."""
        checked = self.checked
        if self.next_source is not None:
            self.source = self.next_source()
            self.arguments = (self.source,)
        checked.contributions.write(self.source, checked.rank, self.version)
        call, arguments, clock = self.call, self.arguments, time.perf_counter_ns
        line.wait()
        began = clock()
        outcome = call(*arguments)
        ended = clock()
        # Who is done must not take the core from who is not: the check takes longer than the call.
        line.wait()
        if outcome is None:  # MPI
            holds, late = [(rank, self.version) for rank in range(self.size)], False
        else:
            holds, late = taken(outcome, checked.rank), outcome.late
        result = self.result if self.next_source is None else outcome.result
        if result is None:
            checked.superseded()
        else:
            checked.check(self.name, result, holds, late)
        self.version += 1
        if counted:
            self.samples.append(ended - began)


def _make(
    name: str, comm: MPI.Intracomm, checked: Checked, count: int, handles: ExitStack
) -> Series:
    from mpi4py import MPI

    library, _, form = name.partition(" ")
    first = np.empty(count, np.float32)
    checked.contributions.write(first, checked.rank, -1)
    if library == "wagma":
        options: dict[str, Any] = {"quorum": 1 if form in ("1", "out of place") else "all"}
        coll = handles.enter_context(
            PartialAllreduce(comm, first, average=False, grace=GRACE, **options)
        )
        if form == "out of place":

            def reduce(buffer: Vector) -> Any:
                outcome = coll.allreduce(buffer)
                _ = outcome.result  # looking at the sum is part of the call
                return outcome

            return Series(
                name, reduce, (), first, first, checked, comm.Get_size(), coll.next_contribution
            )
        x = first if form == "private" else coll.empty()
        return Series(name, coll.allreduce, (x,), x, x, checked, comm.Get_size())
    typed = form.endswith(", typed")
    in_place = form.startswith("in place")
    result = first if in_place else np.empty_like(first)
    sent: Any = [first, MPI.FLOAT] if typed else first
    received: Any = [result, MPI.FLOAT] if typed else result
    arguments = (MPI.IN_PLACE if in_place else sent, received)
    return Series(name, comm.Allreduce, arguments, first, result, checked, comm.Get_size())


def measure(
    case: Case, comm: MPI.Intracomm, line: StartLine, corrupt: str | None
) -> dict[str, dict[str, Any]]:
    """Runs a case; collective. `corrupt`: falsify one result of "wagma" or "mpi" series.

    Returns:
        For each series this rank's samples in ns and its counts of results.
    """
    count = case.bytes // 4
    contributions = Contributions(count)
    last = comm.Get_rank() == comm.Get_size() - 1
    with ExitStack() as handles:
        series = []
        for name in case.series:
            spoil = 1 if last and corrupt is not None and name.startswith(corrupt) else None
            checked = Checked(comm.Get_rank(), contributions, spoil)
            series.append(_make(name, comm, checked, count, handles))
        gc.collect()
        gc.disable()
        for block in range(case.blocks):
            for one in series if block % 2 == 0 else reversed(series):
                for i in range(case.warmup + case.iterations):
                    one.iterate(line, counted=i >= case.warmup)
        gc.enable()
        line.wait()  # nobody departs while another is still in its last call
    return {s.name: {"samples_ns": s.samples, **s.checked.counts()} for s in series}
