"""The rows that compare with MPI_Allreduce, from the raw samples of a report. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wagma.units import size_text, time_text

from ..samples import Series
from .plan import ARRIVAL_SIZE, COMPARED, GOALS, GRACE, LATE_MAX, LATENESS, LOOPS, SMALL_RANKS
from .ratios import Measured, against_better, late_share, summary, verdict
from .row import DEFAULT_LEVEL, Report, Row, launch_name, spread
from .stored import load

__all__ = ["LOOP_NAMES", "arrival", "large", "points", "small"]

LOOP_NAMES = {"c": "from C", "python": "from Python"}
_NAMES = {
    "all": 'quorum="all"',
    "private": 'quorum="all", private array',
    "small": 'quorum="all"',
    "quorum1": f"quorum=1, grace={GRACE:g}",
    "out-of-place": f"quorum=1, grace={GRACE:g}, out of place (the sum, looked at where it is)",
}


def points(
    launch: dict[str, Any], size: int, loop: str, lateness: float = 0.0
) -> Iterator[dict[str, Series]]:
    """The series of what a launch measured of such cases, by their names."""
    for case, point in zip(launch["cases"], launch["points"], strict=True):
        if (case["bytes"], case["loop"], case["lateness"]) == (size, loop, lateness):
            yield load(point)


def large(group: str) -> Callable[[Report], Iterator[Row]]:
    """The rows of one of LARGE."""

    def rows(report: Report) -> Iterator[Row]:
        for ranks in report["ranks"]:
            for size in report["large"]:
                yield from _ratio(report, group, ranks, size, "python")

    return rows


def small(report: Report) -> Iterator[Row]:
    """From C and from Python, for two ranks."""
    for loop in LOOPS:
        for size in report["small"]:
            yield from _ratio(report, "small", SMALL_RANKS, size, loop)


def _measured(
    report: Report, series: str, ranks: int, size: int, loop: str, lateness: float = 0.0
) -> list[Measured]:
    """The launches that have it; those at mpi4py's thread level, or else all."""
    found = []
    for launch in report["launches"]:
        for point in points(launch, size, loop, lateness) if launch["ranks"] == ranks else ():
            # What cannot be called from C was called from Python.
            all_ = {name: one for name, one in point.items() if one.loop == loop}
            mpi = {name: summary(one) for name, one in all_.items() if one.library == "mpi"}
            if series in all_ and mpi:
                own = all_[series]
                late = late_share(own)
                found.append(Measured(launch_name(launch), summary(own), mpi, late))
    return found


def _at_default(found: list[Measured]) -> list[Measured]:
    # The goals are against what mpi4py asks MPI for; the other levels are told beside them.
    return [one for one in found if one.launch.endswith(DEFAULT_LEVEL)] or found


def _ratio(report: Report, group: str, ranks: int, size: int, loop: str) -> Iterator[Row]:
    series = COMPARED[group]
    measured = _measured(report, series, ranks, size, loop)
    if not measured:
        return
    best = against_better(_at_default(measured))
    goal = GOALS.get((series, size))
    details = f"{spread(best.wagma)}; {best.launch} {_form(best.form)} {spread(best.mpi)}"
    if group in ("quorum1", "out-of-place"):
        details += f"; late {best.late_share:.1%}"
    for one in measured:
        if not one.launch.endswith(DEFAULT_LEVEL):
            details += f"; {against_better([one]).ratio:.2f}x {one.launch}"
    yield Row(
        group,
        f"{_NAMES[group]}, {size_text(size)}{f', {LOOP_NAMES[loop]}' if group == 'small' else ''}",
        ranks,
        "" if goal is None else f">= {goal:g}x",
        f"{best.ratio:.2f}x",
        verdict(best.ratio, goal, best.late_share, LATE_MAX),
        details,
        best,
    )


def arrival(report: Report) -> Iterator[Row]:
    """One rank comes late: what the others' calls take, from their own arrivals."""
    for ranks in report["ranks"]:
        for lateness in LATENESS:
            series = COMPARED["arrival"]
            measured = _measured(report, series, ranks, ARRIVAL_SIZE, "python", lateness)
            if not measured:
                continue
            best = against_better(_at_default(measured))
            yield Row(
                "arrival",
                f'quorum=1, grace="auto", a rank comes {lateness * 1e3:g} ms late: the others, '
                f"{size_text(ARRIVAL_SIZE)}",
                ranks,
                "",
                time_text(best.wagma.median),
                "",
                f"{spread(best.wagma)}, late {best.late_share:.1%}; {best.launch} "
                f"{_form(best.form)} {spread(best.mpi)}, late 0%",
                best,
            )


def _form(name: str) -> str:
    return name.removeprefix("MPI_Allreduce ")
