"""Tables with a line for each series, in the form of OSU Micro-Benchmarks: skew and overlap.

Latencies are those of the slowest rank of each iteration, and the percentiles those of -z.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from ..figures import delayed, figures, headline, nonblocking, percentile, punctual, ratio, wagma
from ..samples import Point, Report, Series
from ..settings import Settings
from ..titles import title
from .columns import Column, header, row, wide
from .osu import footer, number, preamble, validation

__all__ = ["Sweep"]

PERCENTILES = (50.0, 90.0, 99.0)

Line = tuple[Point, Series]
Columns = list[Column[Line]]


class Sweep:
    """The kinds "skew" and "overlap"; see `View`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        columns = _skew(settings) if settings.kind == "skew" else _overlap(settings)
        if settings.quorum != "all":
            columns.append(Column("Late(%)", _of(lambda one: figures(one).late_percent)))
        if settings.validate:
            columns.append(Column("Validation", lambda line: validation(line[1:])))
        columns.append(wide("Time/wagma's", _ratio(settings)))
        self._columns = columns

    def header(self, environment: dict[str, Any]) -> str:  # noqa: ARG002 it goes to stderr
        """See `View`."""
        settings = self._settings
        line = title(settings.kind, version("wagma"), settings.buffer)
        names = header(self._columns).rstrip("\n")
        return f"\n{line}\n{preamble(settings)}{names}  Series\n"

    def row(self, point: Point) -> str:
        """See `View`."""
        lines = []
        for series in point.series:
            cells = row(point.size, self._columns, (point, series)).rstrip("\n")
            lines.append(f"{cells}  {series.name}\n")
        return "".join(lines)

    def footer(self, report: Report) -> str:
        """See `View`."""
        return footer(report)


def _skew(settings: Settings) -> Columns:
    columns: Columns = [
        Column("T(us)", lambda line: number(1e6 * (line[0].amplitude or 0.0))),
    ]
    for from_last, what in ((False, "Own"), (True, "Last")):
        for percent in settings.percentiles or PERCENTILES:
            columns.append(_percentile(what, percent, from_last))
    if settings.full:
        columns.append(Column("Skew(%)", _of(lambda one: figures(one).skew_percent)))
        columns.append(Column("Iterations", lambda line: str(len(line[1].began)), 12))
    return columns


def _percentile(what: str, percent: float, from_last: bool) -> Column[Line]:
    def cell(line: Line) -> str:
        return number(percentile(line[1], percent, from_last=from_last))

    return wide(f"{what} P{percent:g}(us)", cell)


def _overlap(settings: Settings) -> Columns:
    columns: Columns = [Column("Compute(us)", _of(lambda one: nonblocking(one).compute))]
    for percent in settings.percentiles or PERCENTILES:
        columns.append(_paid(percent))
    columns.append(wide("Late rank P50(us)", _delayed))
    columns.append(Column("Posting(us)", _of(lambda one: nonblocking(one).posting)))
    columns.append(Column("Waiting(us)", _of(_waiting)))
    if settings.full:
        columns.append(Column("Iterations", lambda line: str(len(line[1].began)), 12))
    return columns


def _waiting(series: Series) -> float:
    found = nonblocking(series)
    return found.testing + found.waiting


def _paid(percent: float) -> Column[Line]:
    return wide(f"Paid P{percent:g}(us)", _of(lambda one: punctual(one, percent)))


def _delayed(line: Line) -> str:
    value = delayed(line[1], 50)
    return "n/a" if value is None else number(value)


def _of(figure: Callable[[Series], float]) -> Callable[[Line], str]:
    return lambda line: number(figure(line[1]))


def _ratio(settings: Settings) -> Callable[[Line], str]:
    """To wagma's series of the same point; of what punctual ranks pay, where that is measured."""

    def paid(series: Series) -> float:
        return punctual(series, 50)

    figure = paid if settings.kind == "overlap" else headline

    def cell(line: Line) -> str:
        value = ratio(wagma(line[0]), line[1], figure)
        return "n/a" if value is None else number(value)

    return cell
