"""The columns of nccl-tests; what is ours comes after them.

The time is that of the slowest rank of each iteration, and of these the median.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from wagma.report.remarks import remarks

from ..datatypes import DATATYPES
from ..figures import algbw, baseline, busbw, figures, headline, labels, ratio, reducing, wagma
from ..kinds import title
from ..samples import Point, Report
from ..settings import Settings

ROOT = "-1"  # there is none
TIMED = ("time", "algbw", "busbw", "#wrong")


@dataclass(frozen=True)
class _Column:
    name: str
    unit: str
    width: int
    cell: Callable[[Point], str]


class Nccl:
    """all_reduce_perf of nccl-tests; see `View`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._columns = [*_theirs(settings), *_ours(settings)]

    def header(self, environment: dict[str, Any]) -> str:
        """See `View`."""
        settings, columns = self._settings, self._columns
        names = [column.name for column in columns]
        before = sum(column.width + 2 for column in columns[: names.index(TIMED[0])])
        timed = sum(column.width + 2 for column in columns if column.name in TIMED)
        lines = (
            " " * before + settings.form.center(timed),
            _line(columns, names),
            _line(columns, [column.unit for column in columns]),
        )
        table = "".join(f"#{line[1:].rstrip()}\n" for line in lines)
        line = title(settings.kind, version("wagma"), settings.buffer)
        return f"{line}\n{remarks(environment)}#\n{table}"

    def row(self, point: Point) -> str:
        """See `View`."""
        columns = self._columns
        return _line(columns, [column.cell(point) for column in columns]) + "\n"

    def footer(self, report: Report) -> str:
        """Return nccl-tests' last lines, with the bandwidth averaged over the points."""
        wrong = sum(map(_wrong, report.points))
        verdict = (
            "N/A" if not report.settings.validate else f"{wrong} {'FAILED' if wrong else 'OK'}"
        )
        rates = [_busbw(report.settings, point) for point in report.points]
        text = f"# Out of bounds values : {verdict}\n"
        if rates:
            text += f"# Avg bus bandwidth    : {sum(rates) / len(rates):g}\n"
        return text + ("# interrupted\n" if report.interrupted else "") + "#\n"


def _line(columns: list[_Column], cells: list[str]) -> str:
    pairs = zip(columns, cells, strict=True)
    return "  ".join(cell.rjust(column.width) for column, cell in pairs)


def _theirs(settings: Settings) -> list[_Column]:
    kind = DATATYPES[settings.datatype]

    def wrong(point: Point) -> str:
        return f"{_wrong(point):g}" if settings.validate else "N/A"

    return [
        _Column("size", "(B)", 12, lambda point: str(point.size)),
        _Column("count", "(elements)", 12, lambda point: str(point.count)),
        _Column("type", "", 8, lambda _: kind.nccl),
        _Column("redop", "", 6, lambda _: "sum"),
        _Column("root", "", 6, lambda _: ROOT),
        _Column("time", "(us)", 7, lambda point: _time(headline(wagma(point)))),
        _Column(
            "algbw", "(GB/s)", 6, lambda point: f"{algbw(point.size, headline(wagma(point))):.2f}"
        ),
        _Column("busbw", "(GB/s)", 6, lambda point: f"{_busbw(settings, point):.2f}"),
        _Column("#wrong", "", 6, wrong),
    ]


def _wrong(point: Point) -> int:
    """Count the wrong results of all series; a baseline's make the exit status 1, too."""
    return sum(series.checks.wrong for series in point.series)


def _busbw(settings: Settings, point: Point) -> float:
    series = wagma(point)
    return busbw(point.size, headline(series), reducing(settings, series))


def _ours(settings: Settings) -> list[_Column]:
    columns = [_Column("late", "(%)", 6, lambda point: f"{figures(wagma(point)).late_percent:.2f}")]
    if settings.kind == "skew":
        columns.append(_Column("T", "(us)", 7, lambda point: _time(1e6 * (point.amplitude or 0.0))))
    for name, label in labels(settings).items():
        columns.append(_Column(label, "(us)", max(7, len(label)), _baseline(name)))
        columns.append(_Column("speedup", "", 7, _ratio(name)))
    return columns


def _baseline(name: str) -> Callable[[Point], str]:
    def cell(point: Point) -> str:
        series = baseline(point, name)
        return "n/a" if series is None else _time(headline(series))

    return cell


def _ratio(name: str) -> Callable[[Point], str]:
    def cell(point: Point) -> str:
        series = baseline(point, name)
        value = None if series is None else ratio(wagma(point), series)
        return "n/a" if value is None else f"{value:.2f}"

    return cell


def _time(us: float) -> str:
    """Return a time as nccl-tests prints it: the longer, the fewer decimals."""
    return f"{us:.{0 if us >= 10000 else 1 if us >= 100 else 2}f}"
