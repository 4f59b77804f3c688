"""Reductions that are posted, computed beside, and waited for: ``iallreduce`` and ``overlap``.

iallreduce is osu_iallreduce. A reduction that is posted and waited for at once is "pure"; others
have computing in between, as long as a pure one of the same subject takes, or as
`Settings.compute` says. While computing, MPI_Test and `Request.test` are called `Settings.tests`
times. Both kinds of calls alternate, in an order that is drawn anew in every pass.

overlap has one rank, drawn anew in every iteration, that posts `Settings.lateness` late. What the
punctual ranks pay is their time in posting and waiting. Beside it: the same with MPI_Iallreduce, a
blocking call after the computing instead, and a blocking call of ranks that are all there at once
and do not compute, which is the reduction itself.

With a quorum that is not all, each way of calling wagma has a handle of its own, since a handle
learns from the calls how long to wait (grace="auto").
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wagma.inject import Paper

from .checking import Checked, merge
from .computing import Computing
from .datatypes import DATATYPES
from .measure import alternate, checked_of, contributions_of, gathered, iterations_of
from .samples import Point, Series
from .settings import WAYS, wait_avoiding
from .subjects.posted import Posted, posted
from .timed import PythonCalls, Times

if TYPE_CHECKING:
    from mpi4py import MPI

    from .contributions import Contributions
    from .settings import Settings
    from .start import Start

__all__ = ["measure"]
PARTS = ("posting", "waiting", "testing", "computing")


class PostedCalls(PythonCalls):
    """One way to call a subject, which several ways may share; on all ranks together.

    Args:
        subject: what is called.
        comm: all ranks.
        start: of them.
        contributions: that are written before each call.
        checked: counts the results; None: they are not compared.
        iterations: counted ones, whose times are kept.
        computing: between posting and waiting.
        tests: calls of `Posted.test` meanwhile.

    Attributes:
        posts: the reduction is posted before computing; otherwise a blocking call comes after it.
        present: nobody comes late, whatever the pattern says.
        compute: ns to compute; 0: not at all.
        parts: ns of each of PARTS, [iterations].
    """

    subject: Posted
    posts = True
    present = False
    compute = 0

    def __init__(
        self,
        subject: Posted,
        comm: MPI.Intracomm,
        start: Start,
        contributions: Contributions,
        checked: Checked | None,
        iterations: int,
        computing: Computing,
        tests: int,
    ) -> None:
        super().__init__(subject, comm, start, contributions, checked, iterations)
        self._computing, self._tests = computing, tests
        self.parts: dict[str, Times] = {part: np.zeros(iterations, np.int64) for part in PARTS}

    def _run(self, iterations: range, arrivals: Times, counted: int) -> None:
        rank = self._comm.Get_rank()
        if self.present:
            arrivals = np.zeros_like(arrivals)
        for iteration, arrival in zip(iterations, arrivals.tolist(), strict=True):
            self._contributions.write(self.subject.array(), rank, self.subject.version)
            self.subject.ready()
            self._start.wait(arrival)
            began, ended, outcome, parts = self._call()
            self._start.meet()  # nobody checks while another still reduces
            taken = self.subject.taken(self.subject.delivered(outcome))
            if iteration >= counted:
                for part, ns in zip(PARTS, parts, strict=True):
                    self.parts[part][iteration] = ns
            number = range(iteration, iteration + 1)
            self._note(number, counted, [began], [ended], [taken])

    def _call(self) -> tuple[int, int, Any, tuple[int, ...]]:
        """When it began and ended, what it gave, and PARTS."""
        subject, now = self.subject, self._start.now
        blocking = subject.caller()
        request: Any = None
        computing = testing = 0
        began = posted = now()
        if self.posts:
            request = subject.post()
            posted = now()
        if self.compute > 0:
            tests = self._tests if self.posts else 0
            computing, testing = self._computing.spend(
                self.compute, tests, lambda: subject.test(request)
            )
        waits = now()
        outcome = subject.wait(request) if self.posts else blocking()
        ended = now()
        return began, ended, outcome, (posted - began, ended - waits + testing, testing, computing)


def measure(
    settings: Settings,
    comm: MPI.Intracomm,
    start: Start,
    size: int,
    arrival: str,
    offsets: Times,
    *,
    amplitude: float | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Point | None:
    """Measures; as `wagma.benchmarks.measure.measure`, for the kinds "iallreduce" and "overlap".

    The kind "overlap" has its own pattern: `amplitude` is then the lateness.
    """
    count = size // DATATYPES[settings.datatype].bytes
    contributions = contributions_of(settings, size, comm.Get_size())
    computing = Computing(start.now, crowded=start.crowded)
    iterations = sum(iterations_of(settings, size)[0])

    def calls(subject: Posted) -> PostedCalls:
        checked = checked_of(settings, comm, subject, contributions)
        return PostedCalls(
            subject, comm, start, contributions, checked, iterations, computing, settings.tests
        )

    with ExitStack() as stack:
        ways = WAYS[settings.kind]
        handles = ways if wait_avoiding(settings, comm.Get_size()) else 1
        made = posted(settings, comm, contributions, count, stack, handles)
        wagma = made[:handles] if handles == ways else made[:1] * ways
        others = made[handles:]
        if settings.kind == "overlap":
            arrival, amplitude = f"one-late:{1e3 * settings.lateness:g}ms", settings.lateness
            late = Paper(comm.Get_size(), 1, settings.lateness, seed=settings.seed)
            offsets = np.rint(1e9 * late.table(iterations)).astype(np.int64)
            groups = _overlap(wagma, others, calls)
        else:
            groups = _iallreduce(wagma, others, calls)
        _calibrate(groups, settings, comm, size)
        all_ways = [way for group in groups for way in group.ways]
        complete = alternate(
            all_ways, settings, comm, size, offsets, interrupted, amplitude=amplitude
        )
    delayed = settings.kind == "overlap"
    rows = offsets[np.arange(complete) % len(offsets)] > 0 if delayed else None
    found = [series for group in groups for series in _series(group, comm, complete, rows)]
    if comm.Get_rank() != 0 or complete == 0:
        return None
    return Point(size, count, arrival, amplitude, tuple(found))


# ---- ways to call --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Ways to call one subject.

    Attributes:
        pure: gives the time to compute; None: another group's does.
        timed: those that are series.
        merged: `pure` is no series, but a part of the others.
    """

    pure: PostedCalls | None
    timed: list[PostedCalls]
    merged: bool

    @property
    def ways(self) -> list[PostedCalls]:
        """All of them."""
        extra = [self.pure] if self.pure is not None and self.merged else []
        return extra + self.timed


def _iallreduce(
    wagma: list[Posted], others: list[Posted], calls: Callable[[Posted], PostedCalls]
) -> list[_Group]:
    pairs = [(wagma[0], wagma[1]), *((one, one) for one in others)]
    return [_Group(calls(pure), [calls(timed)], merged=True) for pure, timed in pairs]


def _overlap(
    wagma: list[Posted], others: list[Posted], calls: Callable[[Posted], PostedCalls]
) -> list[_Group]:
    ways = [calls(one) for one in wagma]
    for way, name in zip(ways, ("wagma posted", "wagma blocking", "wagma present"), strict=True):
        way.name = name
        way.posts = name == "wagma posted"
        way.present = name == "wagma present"
    groups = [_Group(ways[-1], ways, merged=False)]
    groups += [_Group(None, [calls(one)], merged=False) for one in others]
    return groups


def _calibrate(groups: list[_Group], settings: Settings, comm: MPI.Intracomm, size: int) -> None:
    """Says how long each way computes; collective."""
    blocks, warmups = iterations_of(settings, size)
    number = min(warmups[0] + blocks[0], len(groups[0].ways[0].began))
    compute = None if settings.compute is None else round(1e9 * settings.compute)
    for group in groups:
        if settings.compute is None and group.pure is not None:
            # Their times are overwritten by those of the first passes.
            group.pure.run(range(number), np.zeros(number, np.int64), 0)
            took = group.pure.ended[:number] - group.pure.began[:number]
            compute = round(comm.allreduce(float(np.median(took))) / comm.Get_size())
        for way in group.timed:
            if way is not group.pure or group.merged:
                way.compute = compute or 0


def _series(
    group: _Group, comm: MPI.Intracomm, complete: int, delayed: npt.NDArray[np.bool_] | None
) -> list[Series]:
    """At rank 0, of as many iterations as were completed; collective."""
    found = []
    pure = gathered(comm, group.pure, complete) if group.pure is not None and group.merged else None
    for way in group.timed:
        series = gathered(comm, way, complete)
        by_rank = comm.gather({part: ns[:complete] for part, ns in way.parts.items()})
        if series is None or by_rank is None:
            continue
        parts: dict[str, Any] = {
            part: np.stack([rank[part] for rank in by_rank], axis=1) for part in PARTS
        }
        series = replace(series, **parts)
        if pure is not None:
            checks = merge([series.checks, pure.checks])
            series = replace(series, checks=checks, pure=pure.ended - pure.began)
        if delayed is not None:
            series = replace(series, delayed=delayed & (not way.present))
        found.append(series)
    return found
