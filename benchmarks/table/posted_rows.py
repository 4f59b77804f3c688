"""The rows of reductions that are posted, from the raw samples of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .ratios import Summary, Times, summarise
from .row import Report, Row, launch_name, reached, size_text, spread, time_text

__all__ = ["delayed", "iallreduce", "overlap", "overlap_percent", "punctual"]

HIDDEN_GOAL = 1.5  # times a reduction with everybody present

Series = Mapping[str, Any]


def _points(report: Report, kind: str, ranks: int) -> Iterator[tuple[str, dict[str, Series]]]:
    """Launches of so many ranks that have it, and their series."""
    for launch in report["launches"]:
        if launch["ranks"] == ranks and (point := launch["posted"].get(kind)):
            yield launch_name(launch), point["series"]


# ---- iallreduce ----------------------------------------------------------------------------------


def overlap_percent(series: Series) -> float:
    """What OSU prints, from means over iterations and ranks: how much of a reduction is hidden."""
    overall = np.mean(series["ended_ns"]) - np.mean(series["began_ns"])
    exposed = (overall - np.mean(series["computing"])) / np.mean(series["pure"])
    return max(0.0, 100 - 100 * float(exposed))


def iallreduce(report: Report) -> Iterator[Row]:
    """How much of a reduction is hidden by computing, beside the MPI_Iallreduce that hides most."""
    settings = report["posted"]["iallreduce"]
    for ranks in report["ranks"]:
        found = [
            (overlap_percent(one), name, one, beside, series)
            for beside, series in _points(report, "iallreduce", ranks)
            for name, one in series.items()
            if one["library"] == "mpi"
        ]
        if not found:
            continue
        theirs, form, mpi, beside, series = max(found, key=lambda one: one[0])
        wagma = next(one for one in series.values() if one["library"] == "wagma")
        yield Row(
            "iallreduce",
            f'quorum="all", posted, computing as long as a reduction takes, '
            f"{settings['tests']} tests: overlap, {size_text(settings['sizes'][0])}",
            ranks,
            "",
            f"{overlap_percent(wagma):.0f}%",
            "",
            f"{_parts(wagma)}; {beside} {form} {theirs:.0f}%: {_parts(mpi)}",
        )


def _parts(series: Series) -> str:
    overall = np.array(series["ended_ns"]) - np.array(series["began_ns"])
    parts = {"overall": overall, "compute": series["computing"], "pure": series["pure"]}
    return ", ".join(f"{name} {time_text(np.mean(ns) * 1e-9)}" for name, ns in parts.items())


# ---- overlap -------------------------------------------------------------------------------------


def punctual(series: Series) -> Summary:
    """Times in posting and waiting, maximum over the ranks that did not post late."""
    return summarise(np.where(series["delayed"], 0, _in_calls(series)).max(axis=1))


def delayed(series: Series) -> Summary:
    """The same of the ranks that posted late; ValueError if none did."""
    return summarise(_in_calls(series)[np.array(series["delayed"], np.bool_)])


def _in_calls(series: Series) -> Times:
    times: Times = np.array(series["posting"], np.int64) + np.array(series["waiting"], np.int64)
    return times


def overlap(report: Report) -> Iterator[Row]:
    """Time in posting and waiting; beside the fastest MPI_Iallreduce, as with the ratios."""
    s = report["posted"]["overlap"]
    for ranks in report["ranks"]:
        found = []
        for launch, series in _points(report, "overlap", ranks):
            late = {n: delayed(one) for n, one in series.items() if np.any(one["delayed"])}
            times = {name: punctual(one) for name, one in series.items()}
            forms = [name for name, one in series.items() if one["library"] == "mpi"]
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
            f"{s['lateness'] * 1e3:g} ms late: the others, {size_text(s['sizes'][0])}",
            ranks,
            f"<= {HIDDEN_GOAL:g}x a reduction",
            f"{ratio:.2f}x",
            reached(ratio <= HIDDEN_GOAL),
            details,
        )
