"""The output of OSU Micro-Benchmarks 7, to the letter; what is ours comes after their columns.

Averages are theirs: means over the iterations on each rank, then over the ranks. So are
percentiles: of the means over the ranks, taken without interpolation.

The kinds skew and overlap have a line for each series, of the slowest rank of each iteration.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ..datatypes import DATATYPES
from ..figures import (
    algbw,
    baseline,
    busbw,
    delayed,
    figures,
    headline,
    labels,
    nonblocking,
    osu,
    osu_percentile,
    percentile,
    punctual,
    ratio,
    reducing,
    wagma,
)
from ..kinds import title
from ..samples import Point, Report, Series
from ..settings import Settings

SIZE_WIDTH, WIDTH = 10, 18
OVERALL = "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"
PERCENTILES = (50.0, 90.0, 99.0)  # of skew and overlap, unless others are asked for

Cell = Callable[[Point, Series], str]


@dataclass(frozen=True)
class _Column:
    """A column: the name in the header, and the cell of a series.

    `width` is that of the cells; of the header, too, unless the name is longer.
    """

    name: str
    cell: Cell
    width: int = WIDTH


def _wide(name: str, cell: Cell) -> _Column:
    """Return a column that is at least two spaces from its neighbour, whatever its name."""
    return _Column(name, cell, max(WIDTH, len(name) + 2))


def _of(figure: Callable[[Series], float | None]) -> Cell:
    return lambda _, series: _number(figure(series))


def _number(value: float | None) -> str:
    """Return times and percentages as OSU prints them."""
    return "n/a" if value is None else f"{value:.2f}"


def _failed(found: Iterable[Series]) -> bool:
    """Return whether a result was wrong, or a series has no compared result."""
    return any(one.checks.wrong or not one.checks.results for one in found)


class Osu:
    """osu_allreduce, osu_iallreduce, and nccl-tests' bandwidths in their form; see `View`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._each_series = settings.kind in _SWEEPS
        self._columns = (_SWEEPS | _OSU).get(settings.kind, _latency)(settings)
        self._columns += (_ours if self._each_series else _beside_osu)(settings)

    def header(self, environment: dict[str, Any]) -> str:
        """Return OSU's first lines, and those of GPUs; all else goes to standard error."""
        settings = self._settings
        line = title(settings.kind, version("wagma"), settings.buffer)
        overall = OVERALL if settings.kind == "iallreduce" else ""
        names = "".join(column.name.rjust(column.width) for column in self._columns)
        series = "  Series" if self._each_series else ""
        gpus = "".join(
            f"# Ranks {one['ranks']}: {one['gpu']}, driver {one['driver']}.\n"
            for one in environment.get("gpus", ())
        )
        preamble = _preamble(settings) + gpus
        return f"\n{line}\n{overall}{preamble}{'# Size':<{SIZE_WIDTH}}{names}{series}\n"

    def row(self, point: Point) -> str:
        """See `View`."""
        lines = []
        for series in point.series if self._each_series else (wagma(point),):
            cells = "".join(one.cell(point, series).rjust(one.width) for one in self._columns)
            name = f"  {series.name}" if self._each_series else ""
            lines.append(f"{point.size:<{SIZE_WIDTH}}{cells}{name}\n")
        return "".join(lines)

    def footer(self, report: Report) -> str:
        """Return OSU's error message if a result was wrong; empty otherwise."""
        if report.settings.validate:
            for point in report.points:
                if _failed(point.series):
                    return (
                        f"DATA VALIDATION ERROR: wagma bench {report.settings.kind} exited with "
                        f"status 1 on message size {point.size}.\n"
                    )
        return ""


def _preamble(settings: Settings) -> str:
    """Return the datatype, and settings that OSU does not know where they differ from its own."""
    lines = [f"# Datatype: {DATATYPES[settings.datatype].mpi}."]
    if settings.transport != "auto":
        lines.append(f"# Transport: {settings.transport}.")
    if settings.kind == "overlap":
        lines.append(f"# One rank posts {_number(1e6 * settings.lateness)} us late.")
    if settings.arrival != "together":
        lines.append(f"# Arrival: {settings.arrival}.")
    if settings.quorum != "all":
        lines.append(
            f"# Quorum: {settings.quorum}, late: {settings.late}, grace: {settings.grace}."
        )
    if labels(settings):
        lines.append("# Speedup: ratio of the medians; other columns may be averages.")
    return "\n".join(lines) + "\n"


# ---- OSU's columns -------------------------------------------------------------------------------

Columns = list[_Column]

_ITERATIONS = _Column("Iterations", lambda _, series: str(len(series.began)), 12)


def _latency(settings: Settings) -> Columns:
    return [_Column("Avg Latency(us)", _of(lambda one: osu(one).mean)), *_full(settings)]


def _bandwidth(settings: Settings) -> Columns:
    return [
        _Column("algbw(GB/s)", lambda point, one: _number(algbw(point.size, headline(one)))),
        _Column("busbw(GB/s)", lambda point, one: _number(_bus(settings, point, one))),
        *_full(settings),
    ]


def _bus(settings: Settings, point: Point, series: Series) -> float:
    return busbw(point.size, headline(series), reducing(settings, series))


def _full(settings: Settings) -> Columns:
    if not settings.full:
        return []
    return [
        _Column("Min Latency(us)", _of(lambda one: osu(one).smallest)),
        _Column("Max Latency(us)", _of(lambda one: osu(one).largest)),
        _ITERATIONS,
    ]


def _nonblocking(settings: Settings) -> Columns:
    parts = [
        _Column("Coll. Init(us)", _of(lambda one: nonblocking(one).posting)),
        _Column("MPI_Test(us)", _of(lambda one: nonblocking(one).testing)),
        _Column("MPI_Wait(us)", _of(lambda one: nonblocking(one).waiting)),
    ]
    extremes = [
        _Column("Min Comm.(us)", _of(lambda one: nonblocking(one).pure.smallest)),
        _Column("Max Comm.(us)", _of(lambda one: nonblocking(one).pure.largest)),
    ]
    return [
        _Column("Overall(us)", _of(lambda one: nonblocking(one).overall)),
        _Column("Compute(us)", _of(lambda one: nonblocking(one).compute)),
        *(parts if settings.full else []),
        _Column("Pure Comm.(us)", _of(lambda one: nonblocking(one).pure.mean)),
        *(extremes if settings.full else []),
        _Column("Overlap(%)", _of(lambda one: nonblocking(one).overlap_percent)),
    ]


def _tail(percent: float) -> _Column:
    """Return the column of a tail latency as OSU has it, which shifts the header of P100."""
    name = f"  P{percent:g} Tail Lat(us)"
    width = WIDTH if percent == int(percent) else max(WIDTH, len(name))
    return _Column(name, _of(lambda one: osu_percentile(one, percent)), width)


def _beside_osu(settings: Settings) -> Columns:
    """Return OSU's optional columns, and for each baseline its own figure and the speed-up."""
    columns = []
    if settings.validate:
        columns.append(_Column("Validation", lambda point, _: _validation(point.series)))
    columns += [*map(_tail, settings.percentiles), *_late(settings)]
    for name, label in labels(settings).items():
        if settings.kind == "bandwidth":
            bus = _beside(name, lambda point, one: _bus(settings, point, one))
            columns.append(_wide(f"{label} busbw(GB/s)", bus))
        else:
            columns.append(_wide(f"{label}(us)", _beside(name, lambda _, one: osu(one).mean)))
        if settings.kind == "iallreduce":
            overlap = _beside(name, lambda _, one: nonblocking(one).overlap_percent)
            columns.append(_wide(f"{label} overlap(%)", overlap))
        speedup = _beside(name, lambda point, one: ratio(wagma(point), one))
        columns.append(_wide(f"Speedup over {label}", speedup))
    return columns


def _validation(found: Iterable[Series]) -> str:
    """Return OSU's word for right or wrong results."""
    return "Fail" if _failed(found) else "Pass"


def _late(settings: Settings) -> Columns:
    if settings.quorum == "all":
        return []
    return [_Column("Late(%)", _of(lambda one: figures(one).late_percent))]


def _beside(name: str, figure: Callable[[Point, Series], float | None]) -> Cell:
    """Return the cell of a figure of a baseline's fastest series."""

    def cell(point: Point, _: Series) -> str:
        series = baseline(point, name)
        return _number(None if series is None else figure(point, series))

    return cell


# ---- skew and overlap ----------------------------------------------------------------------------


def _skew(settings: Settings) -> Columns:
    percentiles = settings.percentiles or PERCENTILES
    columns = [
        _Column("T(us)", lambda point, _: _number(1e6 * (point.amplitude or 0.0))),
        *(_percentile("Own", percent, from_last=False) for percent in percentiles),
        *(_percentile("Last", percent, from_last=True) for percent in percentiles),
    ]
    if settings.full:
        columns += [_Column("Skew(%)", _of(lambda one: figures(one).skew_percent)), _ITERATIONS]
    return columns


def _percentile(what: str, percent: float, *, from_last: bool) -> _Column:
    cell = _of(lambda one: percentile(one, percent, from_last=from_last))
    return _wide(f"{what} P{percent:g}(us)", cell)


def _overlap(settings: Settings) -> Columns:
    return [
        _Column("Compute(us)", _of(lambda one: nonblocking(one).compute)),
        *map(_paid, settings.percentiles or PERCENTILES),
        _wide("Late rank P50(us)", _of(lambda one: delayed(one, 50))),
        _Column("Posting(us)", _of(lambda one: nonblocking(one).posting)),
        _Column(
            "Waiting(us)", _of(lambda one: nonblocking(one).testing + nonblocking(one).waiting)
        ),
        *([_ITERATIONS] if settings.full else []),
    ]


def _paid(percent: float) -> _Column:
    return _wide(f"Paid P{percent:g}(us)", _of(lambda one: punctual(one, percent)))


def _ours(settings: Settings) -> Columns:
    """Return the last columns of skew and overlap.

    The ratio is to wagma's series of the same point, of what punctual ranks pay with overlap.
    """

    def paid(series: Series) -> float:
        return punctual(series, 50)

    figure = paid if settings.kind == "overlap" else headline
    columns = _late(settings)
    if settings.validate:
        columns.append(_Column("Validation", lambda _, series: _validation([series])))
    times = _wide("Time/wagma's", lambda point, one: _number(ratio(wagma(point), one, figure)))
    return [*columns, times]


_OSU = {"iallreduce": _nonblocking, "bandwidth": _bandwidth}
_SWEEPS = {"skew": _skew, "overlap": _overlap}
