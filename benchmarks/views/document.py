"""The whole report as one JSON document; wagma/report/benchmark.schema.json describes it."""

import json
from dataclasses import asdict
from typing import Any

from wagma.report.contents import SCHEMA_VERSION

from ..raw import samples_of
from ..samples import Point, Report, Series
from ..settings import Settings
from .rows import described


class Document:
    """JSON, printed at the end; see `View`."""

    def __init__(self, settings: Settings) -> None:
        """`settings` is part of the report, too."""

    def header(self, environment: dict[str, Any]) -> str:  # noqa: ARG002 it is in the report
        """See `View`."""
        return ""

    def row(self, point: Point) -> str:  # noqa: ARG002
        """See `View`."""
        return ""

    def footer(self, report: Report) -> str:
        """See `View`."""
        return json.dumps(document(report), indent=2, allow_nan=False) + "\n"


def document(report: Report) -> dict[str, Any]:
    """Return the report in JSON values, with the samples if it is to be full."""
    settings = report.settings
    return {
        "schema_version": SCHEMA_VERSION,
        "settings": asdict(settings),
        "environment": report.environment,
        "ranks": report.ranks,
        "interrupted": report.interrupted,
        "points": [
            {
                "size": point.size,
                "count": point.count,
                "arrival": point.arrival,
                "amplitude_us": None if point.amplitude is None else 1e6 * point.amplitude,
                "series": [_series(settings, point, series) for series in point.series],
            }
            for point in report.points
        ],
    }


def _series(settings: Settings, point: Point, series: Series) -> dict[str, Any]:
    value = described(settings, point, series)
    if settings.full:
        value["samples"] = {name: each.tolist() for name, each in samples_of(series).items()}
    return value
