"""The output of OSU Micro-Benchmarks 7, to the letter; what is ours comes after their columns.

Averages are theirs: means over the iterations on each rank, then over the ranks. So are
percentiles: of the means over the ranks, taken without interpolation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

from ..datatypes import DATATYPES
from ..figures import (
    algbw,
    baseline,
    busbw,
    figures,
    headline,
    nonblocking,
    osu,
    osu_percentile,
    ratio,
    reducing,
    wagma,
)
from ..samples import Point, Report, Series
from ..settings import Settings
from ..titles import title
from .columns import WIDTH, Column, header, row, wide
from .labels import labels

__all__ = ["Osu", "footer", "number", "preamble", "validation"]

OVERALL = "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"


def number(value: float) -> str:
    """As OSU prints times and percentages."""
    return f"{value:.2f}"


def failed(found: Iterable[Series]) -> bool:
    """Whether a result was wrong, or of a series none was compared."""
    return any(one.checks.wrong or not one.checks.results for one in found)


def validation(found: Iterable[Series]) -> str:
    """OSU's word for it."""
    return "Fail" if failed(found) else "Pass"


class Osu:
    """osu_allreduce, osu_iallreduce, and nccl-tests' bandwidths in their form; see `View`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._columns = _columns(settings)

    def header(self, environment: dict[str, Any]) -> str:  # noqa: ARG002 it goes to stderr
        """See `View`."""
        settings = self._settings
        line = title(settings.kind, version("wagma"), settings.buffer)
        overall = OVERALL if settings.kind == "iallreduce" else ""
        return f"\n{line}\n{overall}{preamble(settings)}{header(self._columns)}"

    def row(self, point: Point) -> str:
        """See `View`."""
        return row(point.size, self._columns, point)

    def footer(self, report: Report) -> str:
        """See `View`."""
        return footer(report)


def preamble(settings: Settings) -> str:
    """The datatype; and what OSU does not know, where it is not as with OSU."""
    lines = [f"# Datatype: {DATATYPES[settings.datatype].mpi}."]
    if settings.transport != "auto":
        lines.append(f"# Transport: {settings.transport}.")
    if settings.kind == "overlap":
        lines.append(f"# One rank posts {number(1e6 * settings.lateness)} us late.")
    if settings.arrival != "together":
        lines.append(f"# Arrival: {settings.arrival}.")
    if settings.quorum != "all":
        lines.append(
            f"# Quorum: {settings.quorum}, late: {settings.late}, grace: {settings.grace}."
        )
    if labels(settings):
        lines.append("# Speedup: ratio of the medians; other columns may be averages.")
    return "\n".join(lines) + "\n"


def footer(report: Report) -> str:
    """OSU's words, if a result was wrong."""
    if report.settings.validate:
        for point in report.points:
            if failed(point.series):
                return (
                    f"DATA VALIDATION ERROR: wagma bench {report.settings.kind} exited with "
                    f"status 1 on message size {point.size}.\n"
                )
    return ""


# ---- columns -------------------------------------------------------------------------------------

Columns = list[Column[Point]]


def _columns(settings: Settings) -> Columns:
    theirs = {"iallreduce": _nonblocking, "bandwidth": _bandwidth}.get(settings.kind, _latency)
    return theirs(settings) + _late(settings) + _baselines(settings)


def _latency(settings: Settings) -> Columns:
    columns: Columns = [Column("Avg Latency(us)", _of(lambda one: osu(one).mean))]
    return columns + _full(settings) + _validation(settings) + _tails(settings)


def _full(settings: Settings) -> Columns:
    if not settings.full:
        return []
    return [
        Column("Min Latency(us)", _of(lambda one: osu(one).smallest)),
        Column("Max Latency(us)", _of(lambda one: osu(one).largest)),
        Column("Iterations", lambda point: str(len(wagma(point).began)), 12),
    ]


def _validation(settings: Settings) -> Columns:
    return (
        [Column("Validation", lambda point: validation(point.series))] if settings.validate else []
    )


def _tails(settings: Settings) -> Columns:
    def tail(percent: float) -> Callable[[Point], str]:
        return _of(lambda one: osu_percentile(one, percent))

    return [_tail(percent, "Lat(us)", tail(percent)) for percent in settings.percentiles]


def _tail(percent: float, what: str, cell: Callable[[Point], str]) -> Column[Point]:
    """As OSU, which shifts the header of P100."""
    apart = WIDTH - len(f"P99 Tail {what}")
    name = " " * apart + f"P{percent:g} Tail {what}"
    return Column(name, cell, WIDTH if percent == int(percent) else max(WIDTH, len(name)))


def _bandwidth(settings: Settings) -> Columns:
    def algorithm(point: Point) -> str:
        return number(algbw(point.size, headline(wagma(point))))

    def bus(point: Point) -> str:
        return number(_bus(settings, point, wagma(point)))

    columns: Columns = [Column("algbw(GB/s)", algorithm), Column("busbw(GB/s)", bus)]
    return columns + _full(settings) + _validation(settings) + _tails(settings)


def _bus(settings: Settings, point: Point, series: Series) -> float:
    return busbw(point.size, headline(series), reducing(settings, series))


def _nonblocking(settings: Settings) -> Columns:
    columns: Columns = [Column("Overall(us)", _of(lambda one: nonblocking(one).overall))]
    columns += [Column("Compute(us)", _of(lambda one: nonblocking(one).compute))]
    if settings.full:
        columns += [
            Column("Coll. Init(us)", _of(lambda one: nonblocking(one).posting)),
            Column("MPI_Test(us)", _of(lambda one: nonblocking(one).testing)),
            Column("MPI_Wait(us)", _of(lambda one: nonblocking(one).waiting)),
        ]
    columns += [Column("Pure Comm.(us)", _of(lambda one: nonblocking(one).pure.mean))]
    if settings.full:
        columns += [
            Column("Min Comm.(us)", _of(lambda one: nonblocking(one).pure.smallest)),
            Column("Max Comm.(us)", _of(lambda one: nonblocking(one).pure.largest)),
        ]
    columns += [Column("Overlap(%)", _of(lambda one: nonblocking(one).overlap_percent))]
    return columns + _validation(settings) + _tails(settings)


def _of(figure: Callable[[Series], float]) -> Callable[[Point], str]:
    """The figure of wagma's series."""
    return lambda point: number(figure(wagma(point)))


# ---- what OSU does not have ----------------------------------------------------------------------


def _late(settings: Settings) -> Columns:
    if settings.quorum == "all":
        return []
    return [Column("Late(%)", _of(lambda one: figures(one).late_percent))]


def _baselines(settings: Settings) -> Columns:
    """Of each its own figure, and how many times as fast wagma is, by the medians."""
    columns: Columns = []
    for name, label in labels(settings).items():
        if settings.kind == "bandwidth":
            bus = _beside(name, lambda point, one: _bus(settings, point, one))
            columns.append(wide(f"{label} busbw(GB/s)", bus))
        else:
            columns.append(wide(f"{label}(us)", _beside(name, lambda _, one: osu(one).mean)))
        if settings.kind == "iallreduce":
            overlap = _beside(name, lambda _, one: nonblocking(one).overlap_percent)
            columns.append(wide(f"{label} overlap(%)", overlap))
        speedup = _beside(name, lambda point, one: ratio(wagma(point), one))
        columns.append(wide(f"Speedup over {label}", speedup))
    return columns


def _beside(name: str, figure: Callable[[Point, Series], float | None]) -> Callable[[Point], str]:
    """A figure of a baseline's fastest series."""

    def cell(point: Point) -> str:
        series = baseline(point, name)
        value = None if series is None else figure(point, series)
        return "n/a" if value is None else number(value)

    return cell
