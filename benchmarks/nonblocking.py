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
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from wagma.inject import Paper

from .checking import merge
from .computing import Computing
from .kinds import KINDS
from .measure import alternate
from .measurement import Measurement
from .samples import Point, Series, Times
from .settings import wait_avoiding
from .subjects.posted import Posted, posted
from .timed import PythonCalls

PARTS = ("posting", "waiting", "testing", "computing")


class PostedCalls(PythonCalls):
    """One way to call a subject, which several ways may share; on all ranks together.

    Args:
        m: what is measured.
        subject: what is called.
        computing: between posting and waiting.

    Attributes:
        posts: the reduction is posted before computing; otherwise a blocking call comes after it.
        present: nobody comes late, whatever the pattern says.
        compute: ns to compute; 0: not at all.
        pure: the way whose calls take as long as this one computes, unless another time is asked
            for; None: this one does not compute.
        parts: ns of each of PARTS, [iterations].
    """

    subject: Posted
    posts = True
    present = False
    compute = 0
    pure: PostedCalls | None = None

    def __init__(self, m: Measurement, subject: Posted, computing: Computing) -> None:
        super().__init__(m, subject)
        self._computing, self._tests = computing, m.settings.tests
        self.parts: dict[str, Times] = {part: np.zeros_like(self.began) for part in PARTS}

    def samples(self) -> dict[str, npt.NDArray[Any]]:
        """Return the samples of `PythonCalls.samples`, and those of the parts."""
        return super().samples() | self.parts

    def _run(self, iterations: range, arrivals: Times, counted: int) -> None:
        rank = self._comm.Get_rank()
        if self.present:
            arrivals = np.zeros_like(arrivals)
        for iteration, arrival in zip(iterations, arrivals.tolist(), strict=True):
            self.subject.fill(self._contributions, rank, self.subject.version)
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
        """Call once; return when the call began and ended, what it gave, and PARTS."""
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


def measure(m: Measurement) -> Point | None:
    """Measure; as `wagma.benchmarks.measure.measure`, for the kinds "iallreduce" and "overlap".

    The kind "overlap" has its own pattern: its amplitude is the lateness.
    """
    settings = m.settings
    overlaps = settings.kind == "overlap"
    if overlaps:
        delays = Paper(m.ranks, 1, settings.lateness, seed=settings.seed)
        m = replace(
            m,
            arrival=f"one-late:{1e3 * settings.lateness:g}ms",
            amplitude=settings.lateness,
            offsets=np.rint(1e9 * delays.table(sum(m.passes[0]))).astype(np.int64),
        )
    computing = Computing(m.start.now, crowded=m.start.crowded)
    number = KINDS[settings.kind].ways
    handles = number if wait_avoiding(settings, m.ranks) else 1
    with ExitStack() as stack:
        made = posted(m, stack, handles)
        wagma = made if handles == number else made[:1] * number
        divide = _overlap if overlaps else _iallreduce
        ways = divide(wagma[:number], made[handles:], lambda one: PostedCalls(m, one, computing))
        _calibrate(m, ways)
        pairs = [(way,) if overlaps else (way.pure, way) for way in ways]
        complete = alternate(m, [one for pair in pairs for one in pair if one])
    late = m.offsets_of(range(complete)) > 0 if overlaps else None
    return m.point([_series(way, complete, late) for way in ways], complete)


def _series(way: PostedCalls, complete: int, late: npt.NDArray[np.bool_] | None) -> Series | None:
    """Return a series at rank 0: with `late` ranks, or with the times of pure calls; collective."""
    series = way.gathered(complete)
    if late is not None:
        return series and replace(series, delayed=late & (not way.present))
    assert way.pure is not None
    pure = way.pure.gathered(complete)
    if series is None or pure is None:
        return None
    checks = merge([series.checks, pure.checks])
    return replace(series, checks=checks, pure=pure.ended - pure.began)


# ---- ways to call --------------------------------------------------------------------------------


def _iallreduce(
    wagma: list[Posted], others: list[Posted], calls: Callable[[Posted], PostedCalls]
) -> list[PostedCalls]:
    """Return a way for each series; each has a pure one of its own, which is part of the series."""
    ways = []
    for pure, timed in ((wagma[0], wagma[1]), *((one, one) for one in others)):
        way = calls(timed)
        way.pure = calls(pure)
        ways.append(way)
    return ways


def _overlap(
    wagma: list[Posted], others: list[Posted], calls: Callable[[Posted], PostedCalls]
) -> list[PostedCalls]:
    """Return a way for each series; the pure one is that of ranks that are all present."""
    ways = [calls(one) for one in (*wagma, *others)]
    for way, name in zip(ways, ("wagma posted", "wagma blocking", "wagma present"), strict=False):
        way.name = name
        way.posts = name == "wagma posted"
        way.present = name == "wagma present"
    present = ways[2]
    for way in ways:
        way.pure = None if way is present else present
    return ways


def _calibrate(m: Measurement, ways: list[PostedCalls]) -> None:
    """Tell each way how long to compute; collective."""
    took: dict[PostedCalls, int] = {}
    for way in ways:
        if way.pure is None:
            continue
        if way.pure not in took:
            asked = m.settings.compute
            took[way.pure] = _pure_ns(m, way.pure) if asked is None else round(1e9 * asked)
        way.compute = took[way.pure]


def _pure_ns(m: Measurement, pure: PostedCalls) -> int:
    """Return the mean over the ranks of their median time of a pure call, in ns; collective."""
    blocks, warmups = m.passes
    number = min(warmups[0] + blocks[0], len(pure.began))
    pure.run(range(number), np.zeros(number, np.int64), 0)
    took = pure.ended[:number] - pure.began[:number]
    total: float = m.comm.allreduce(float(np.median(took)))
    return round(total / m.ranks)
