"""The output of ``python -m wagma bench`` as records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wagma.report.formats import FormatError, check_schema
from wagma.report.records import Benchmark, Goals, Measured, Point

__all__ = ["SCHEMA_VERSION", "read_benchmark", "read_goals"]

SCHEMA_VERSION = 1  # of benchmark.schema.json

GOAL_COLUMNS = ("what", "ranks", "goal", "measured", "verdict", "details")


def read_benchmark(path: str, content: Mapping[str, Any]) -> Benchmark:
    """The content of a file of ``--format json``.

    Raises:
        FormatError: it is of another version, or not as its schema says.
    """
    if content["schema_version"] != SCHEMA_VERSION:
        raise FormatError(
            f"its schema has version {content['schema_version']}, this version of wagma reads "
            f"{SCHEMA_VERSION}: make the report with the version that measured"
        )
    check_schema(content, "wagma.report", "benchmark.schema.json")
    points = [
        Point(
            size=point["size"],
            delay_us=point["amplitude_us"],
            series={each["name"]: _measured(each) for each in point["series"]},
        )
        for point in content["points"]
    ]
    return Benchmark(
        path=path,
        kind=content["settings"]["kind"],
        ranks=content["ranks"],
        transport=content["environment"].get("transport", content["settings"]["transport"]),
        settings=content["settings"],
        interrupted=content["interrupted"],
        points=points,
    )


def _measured(series: Mapping[str, Any]) -> Measured:
    own = series["own_us"]
    return Measured(
        name=series["name"],
        p10=own["p10"],
        p50=own["p50"],
        p90=own["p90"],
        late_percent=series["late_percent"],
        ratio=series["ratio"],
        overlap_percent=series["overlap_percent"],
        paid_p50=series["paid_p50_us"],
        paid_p90=series["paid_p90_us"],
        delayed_p50=series["delayed_p50_us"],
        wrong=series["wrong"],
    )


def read_goals(path: str, content: Mapping[str, Any]) -> Goals:
    """The content of a file of ``bench table --json``; KeyError or TypeError if it is none."""
    rows = [{name: str(row[name]) for name in GOAL_COLUMNS} for row in content["table"]]
    if not rows:
        raise FormatError("its table has no rows")
    return Goals(path, rows)
