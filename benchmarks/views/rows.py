"""Every figure of every series: a line of comma-separated values, or a JSON value."""

import csv
import io
from dataclasses import asdict
from typing import Any

from wagma.report.remarks import remarks

from ..figures import (
    algbw,
    busbw,
    delayed,
    figures,
    headline,
    nonblocking,
    punctual,
    ratio,
    reducing,
    wagma,
)
from ..samples import Point, Report, Series
from ..settings import Settings

Described = dict[str, Any]


def described(settings: Settings, point: Point, series: Series) -> Described:
    """Return a series in JSON values; times in us, None where there is no such figure."""
    found, us = figures(series), headline(series)
    ranks = reducing(settings, series)
    value: Described = {
        "name": series.name,
        "library": series.library,
        "loop": series.loop,
        "iterations": len(series.began),
        "avg_us": found.osu.mean,
        "min_us": found.osu.smallest,
        "max_us": found.osu.largest,
        "own_us": asdict(found.own),
        "last_us": asdict(found.from_last),
        "own_by_rank_us": list(found.own_by_rank),
        "last_by_rank_us": list(found.from_last_by_rank),
        "late_percent": found.late_percent,
        "late_by_rank_percent": list(found.late_percent_by_rank),
        "skew_percent": found.skew_percent,
        "arrivals_us": found.arrivals,
        "exits_us": found.exits,
        "algbw_gbs": algbw(point.size, us),
        "busbw_gbs": busbw(point.size, us, ranks),
        "ratio": ratio(wagma(point), series),
        "checked": series.checks.results,
        "wrong": series.checks.wrong,
        "first_wrong": series.checks.first_wrong,
    }
    return value | _posted(series)


def _posted(series: Series) -> Described:
    """Return what only calls have that are posted, or that one rank makes late."""
    value: Described = dict.fromkeys(POSTED)
    found = nonblocking(series)
    if series.posting is not None:
        value |= {
            "compute_us": found.compute,
            "posting_us": found.posting,
            "testing_us": found.testing,
            "waiting_us": found.waiting,
        }
    if series.pure is not None:
        value |= {
            "pure_us": found.pure.mean,
            "pure_min_us": found.pure.smallest,
            "pure_max_us": found.pure.largest,
            "overlap_percent": found.overlap_percent,
        }
    if series.delayed is not None:
        value |= {f"paid_p{percent}_us": punctual(series, percent) for percent in (50, 90, 99)}
        value["delayed_p50_us"] = delayed(series, 50)
    return value


POSTED = (
    *("compute_us", "posting_us", "testing_us", "waiting_us"),
    *("pure_us", "pure_min_us", "pure_max_us", "overlap_percent"),
    *("paid_p50_us", "paid_p90_us", "paid_p99_us", "delayed_p50_us"),
)
PARTS = ("mean", "p10", "p50", "p90", "p99")
COLUMNS = (
    *("kind", "size", "count", "datatype", "ranks", "arrival", "amplitude_us"),
    *("series", "library", "loop", "iterations", "avg_us", "min_us", "max_us"),
    *(f"own_{part}_us" for part in PARTS),
    *(f"last_{part}_us" for part in PARTS),
    *("late_percent", "skew_percent", "arrivals_us", "exits_us", "algbw_gbs", "busbw_gbs"),
    *("ratio", "checked", "wrong", "buffer", "gpu", "driver"),
    *POSTED,
)


class Csv:
    """Comma-separated values, a line for each series; remarks begin with "#"; see `View`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gpu: Described = {}  # of rank 0

    def header(self, environment: dict[str, Any]) -> str:
        """See `View`."""
        self._gpu = next(iter(environment.get("gpus", ())), {})
        return remarks(environment) + _line(COLUMNS)

    def row(self, point: Point) -> str:
        """See `View`."""
        settings = self._settings
        common: Described = {
            "kind": settings.kind,
            "size": point.size,
            "count": point.count,
            "datatype": settings.datatype,
            "arrival": point.arrival,
            "amplitude_us": None if point.amplitude is None else 1e6 * point.amplitude,
            "buffer": settings.buffer,
            "gpu": self._gpu.get("gpu"),
            "driver": self._gpu.get("driver"),
        }
        lines = []
        for series in point.series:
            value = common | described(settings, point, series)
            value |= {"series": series.name, "ranks": series.began.shape[1]}
            for name in ("own", "last"):
                parts = value[f"{name}_us"]
                value |= {f"{name}_{part}_us": parts[part] for part in PARTS}
            lines.append(_line([_cell(value[column]) for column in COLUMNS]))
        return "".join(lines)

    def footer(self, report: Report) -> str:
        """See `View`."""
        return "# interrupted\n" if report.interrupted else ""


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value


def _line(cells: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
