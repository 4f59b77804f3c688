"""The content of files as records. Pure.

A reader raises FormatError where a file is of another version or not what its schema says, and any
of the exceptions that `reading` expects where it is no such file at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wagma.report import heterogeneous
from wagma.report.formats import FormatError, check_schema, finite
from wagma.report.records import (
    Benchmark,
    Curve,
    Distribution,
    Divisions,
    Goals,
    Measured,
    Point,
    Run,
    Simulation,
    Summaries,
    Trace,
    Training,
)
from wagma.simulate import rows as simulated
from wagma.trace.files import FORMAT, Timeline, TraceError, check_one_run, parse
from wagma.trace.summary import RankSummary

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

SCHEMA_VERSION = 1  # of benchmark.schema.json
GOAL_COLUMNS = ("what", "ranks", "goal", "measured", "verdict", "details")
ROW = frozenset(field.name for field in fields(RankSummary))  # keys of a row of the summary


def _record(kind: type[T], content: Mapping[str, Any], /, **more: Any) -> T:
    """Return a record whose fields are entries of `content`, or `more`."""
    names = [field.name for field in fields(kind) if field.name not in more]
    return kind(**{name: content[name] for name in names}, **more)


# ---- benchmarks ----------------------------------------------------------------------------------


def read_benchmark(path: str, content: Mapping[str, Any]) -> Benchmark:
    """Read a report of ``python -m wagma bench --format json``."""
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
            series={
                each["name"]: _record(Measured, each, own=_record(Distribution, each["own_us"]))
                for each in point["series"]
            },
        )
        for point in content["points"]
    ]
    settings = content["settings"]
    transport = content["environment"].get("transport", settings["transport"])
    return _record(
        Benchmark, content, path=path, kind=settings["kind"], transport=transport, points=points
    )


def read_goals(path: str, content: Mapping[str, Any]) -> Goals:
    """Read a file of ``bench table --json``."""
    rows = [{name: str(row[name]) for name in GOAL_COLUMNS} for row in content["table"]]
    if not rows:
        raise FormatError("its table has no rows")
    return Goals(path, rows)


def read_simulation(path: str, content: Mapping[str, Any]) -> Simulation:
    """Read a file of ``python -m wagma simulate --json``."""
    rows, settings = content["rows"], content["settings"]
    if not rows:
        raise FormatError("it has no rows")
    simulated.cells(rows)  # raises what `reading` expects where a figure is missing
    for row in rows:
        float(row["ideal"] + row["efficiency"])
    times = settings["profile"] or f"{settings['compute']:g} s per step, {settings['imbalance']}"
    return Simulation(path, f"{times}, network {settings['network']}", rows)


# ---- trainings -----------------------------------------------------------------------------------


def read_training(path: str, content: Mapping[str, Any]) -> Training:
    """Read a file of ``python -m wagma bench training --json`` or ``demo --json``."""
    check_schema(content, "wagma.report", "training.schema.json")
    if not content["runs"]:
        raise FormatError("it has no runs")
    settings, measures = content["settings"], content["measures"]
    compute = settings["compute"]
    emulated = "" if compute is None else f", {1e3 * compute:g} ms per step (emulated)"
    return Training(
        path=path,
        what=(
            f"{settings['task']} on {content['environment']['ranks']} ranks, "
            f"{content['imbalance']}{emulated}"
        ),
        target=settings["target"],
        labels={run["algorithm"]: run["label"] for run in content["runs"]},
        measure=measures["name"],
        in_percent=measures["in_percent"],
        interrupted=content["interrupted"],
        runs=[_run(run) for run in content["runs"]],
    )


def _run(run: Mapping[str, Any]) -> Run:
    curve = _record(Curve, run["curve"])
    if len(curve.seconds) != len(curve.accuracy):
        raise FormatError("a curve has not as many seconds as values")
    return _record(
        Run,
        run,
        curve=curve if curve.seconds else None,
        staleness={int(age): count for age, count in run["staleness_histogram"].items()},
        dropping=run.get("dropping") or {},
    )


def read_divisions(path: str, content: Mapping[str, Any]) -> Divisions:
    """Read heterogeneous.json of ``python -m wagma bench heterogeneous --out DIR``."""
    if not content["runs"]:
        raise FormatError("it has no runs")
    notes = heterogeneous.notes(content)
    if content["interrupted"]:
        notes.append("It was interrupted: runs or epochs are missing.")
    what, cells = heterogeneous.announced(content), heterogeneous.cells(content)
    return Divisions(path, what, notes, cells)


# ---- timelines -----------------------------------------------------------------------------------


def read_timeline(path: str, content: Mapping[str, Any]) -> Timeline:
    """Read one rank's file."""
    try:
        return parse(content, Path(path))
    except TraceError as error:
        raise FormatError(str(error).removeprefix(f"{path} ")) from None


def read_trace(folder: str, timelines: Sequence[Timeline]) -> Trace:
    """Put the files of one folder together; FormatError: they are of several runs."""
    try:
        check_one_run(timelines)
    except TraceError as error:
        raise FormatError(str(error)) from None
    return Trace(folder, timelines)


def read_merged(path: str, content: Mapping[str, Any]) -> Trace:
    """Read a file of ``trace merge``: the timelines that were merged, on one clock."""
    version = content["otherData"]["wagma-merged"]
    if version != FORMAT:
        raise FormatError(
            f"it has format {version}, this version of wagma reads {FORMAT}: make the report with "
            "the version that merged it"
        )
    events: dict[int, list[Mapping[str, Any]]] = {}
    places = {}
    for event in content["traceEvents"]:
        events.setdefault(event["pid"], []).append(event)
        if event["ph"] == "M" and event["name"] == "process_sort_index":
            places[event["args"]["sort_index"]] = event["pid"]
    heads = content["otherData"]["files"]
    seen: Counter[tuple[str, int]] = Counter()
    numbers: dict[tuple[str, int], int] = {}
    timelines = []
    for place, head in enumerate(heads):
        # Several files of a rank are of as many handles, which may have one name.
        seen[head["handle"], head["rank"]] += 1
        handle = head["handle"], seen[head["handle"], head["rank"]]
        number = numbers.setdefault(handle, len(numbers) + 1)
        about = {
            "wagma": FORMAT,
            "handle": head["handle"],
            "collective": f"{number:x}",
            "rank": head["rank"],
            "size": sum(other["handle"] == head["handle"] for other in heads),
            "transport": "",
            "host": head["host"],
            "process": str(places[place]),
            "dropped": head["dropped"],
            "clock": {"boot": "merged", "namespace": "", "realtime_ns": 0},
        }
        of_rank = {"otherData": about, "traceEvents": events[places[place]]}
        timelines.append(read_timeline(path, of_rank))
    if not timelines:
        raise FormatError("no timeline was merged into it")
    return Trace(path, timelines)


def read_summaries(path: str, rows: Sequence[Mapping[str, Any]]) -> Summaries:
    """Read the output of ``trace summary --json``."""
    found = [RankSummary(**row) for row in rows]
    for row in found:
        for name in ("total_s", "computing", "waiting", "reducing", "behind_s"):
            finite(getattr(row, name))
        for name in ("rank", "calls", "late", "last", "dropped"):
            if not isinstance(getattr(row, name), int):
                raise TypeError(f"{name} is no integer")
    return Summaries(path, found)
