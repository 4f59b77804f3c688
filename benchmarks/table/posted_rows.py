"""The rows of reductions that are posted, from the raw samples of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wagma.units import size_text, time_text

from ..figures import nonblocking
from ..samples import Series
from .ratios import late_ranks, summary
from .row import Report, Row, launch_name, reached, spread
from .stored import load

__all__ = ["iallreduce", "overlap"]

HIDDEN_GOAL = 1.5  # times a reduction with everybody present


def _points(report: Report, kind: str, ranks: int) -> Iterator[tuple[str, dict[str, Series]]]:
    """Launches of so many ranks that have it, and their series."""
    for launch in report["launches"]:
        if launch["ranks"] == ranks and (point := launch["posted"].get(kind)):
            yield launch_name(launch), load(point)


def iallreduce(report: Report) -> Iterator[Row]:
    """How much of a reduction is hidden by computing, beside the MPI_Iallreduce that hides most."""
    settings = report["posted"]["iallreduce"]
    for ranks in report["ranks"]:
        found = [
            (nonblocking(one).overlap_percent, one, beside, series)
            for beside, series in _points(report, "iallreduce", ranks)
            for one in series.values()
            if one.library == "mpi"
        ]
        if not found:
            continue
        theirs, mpi, beside, series = max(found, key=lambda one: one[0])
        wagma = next(one for one in series.values() if one.library == "wagma")
        yield Row(
            "iallreduce",
            f'quorum="all", posted, computing as long as a reduction takes, '
            f"{settings['tests']} tests: overlap, {size_text(settings['sizes'][0])}",
            ranks,
            "",
            f"{nonblocking(wagma).overlap_percent:.0f}%",
            "",
            f"{_parts(wagma)}; {beside} {mpi.name} {theirs:.0f}%: {_parts(mpi)}",
        )


def _parts(series: Series) -> str:
    found = nonblocking(series)
    parts = {"overall": found.overall, "compute": found.compute, "pure": found.pure.mean}
    return ", ".join(f"{name} {time_text(us * 1e-6)}" for name, us in parts.items())


def overlap(report: Report) -> Iterator[Row]:
    """Time in posting and waiting; beside the fastest MPI_Iallreduce, as with the ratios."""
    s = report["posted"]["overlap"]
    for ranks in report["ranks"]:
        found = []
        for launch, series in _points(report, "overlap", ranks):
            late = {name: late_ranks(one) for name, one in series.items()}
            times = {name: summary(one) for name, one in series.items()}
            forms = [name for name, one in series.items() if one.library == "mpi"]
            form = min(forms, key=lambda name: times[name].median, default=None)
            found.append((times[form].median if form else np.inf, launch, form, times, late))
        if not found:
            continue
        _, beside, form, times, late = min(found, key=lambda one: one[0])
        posted, present = times["wagma posted"], times["wagma present"]
        ratio = posted.median / present.median
        details = (
            f"{spread(posted)}, the late rank {spread(late['wagma posted'])}; all present "
            f"{spread(present)}; blocking after the computing {spread(times['wagma blocking'])}"
        )
        if form:
            details += (
                f"; {beside} {form} {spread(times[form])}, the late rank {spread(late[form])}"
            )
        yield Row(
            "overlap",
            f'quorum="all", posted, {s["compute"] * 1e3:g} ms before the wait, a rank posts '
            f"{s['lateness'] * 1e3:g} ms late: the others' time, over a reduction's, "
            f"{size_text(s['sizes'][0])}",
            ranks,
            f"<= {HIDDEN_GOAL:g}x a reduction",
            f"{ratio:.2f}x",
            reached(ratio <= HIDDEN_GOAL),
            details,
        )
