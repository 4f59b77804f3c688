"""Timelines as records: rank by rank, merged, or summed up. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from wagma.report.formats import FormatError, finite
from wagma.report.records import Summaries, Trace
from wagma.trace.files import FORMAT, Timeline, TraceError, check_one_run, parse
from wagma.trace.summary import RankSummary

__all__ = ["ROW", "read_merged", "read_summaries", "read_timeline", "read_trace"]

ROW = frozenset(field.name for field in fields(RankSummary))  # keys of a row of the summary


def read_timeline(path: str, content: Mapping[str, Any]) -> Timeline:
    """One rank's file.

    Raises:
        FormatError: it is of another version, or broken.
    """
    try:
        return parse(content, Path(path))
    except TraceError as error:
        raise FormatError(str(error).removeprefix(f"{path} ")) from None


def read_trace(folder: str, timelines: Sequence[Timeline]) -> Trace:
    """The files of one folder.

    Raises:
        FormatError: they are of several runs.
    """
    try:
        check_one_run(timelines)
    except TraceError as error:
        raise FormatError(str(error)) from None
    return Trace(folder, timelines)


def read_merged(path: str, content: Mapping[str, Any]) -> Trace:
    """A file of ``trace merge``: the timelines that were merged, on one clock.

    Raises:
        FormatError: it is of another version.
        KeyError, TypeError, ValueError, IndexError: it is none.
    """
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
    """The output of ``trace summary --json``; TypeError or ValueError if it is something else."""
    found = [RankSummary(**row) for row in rows]
    for row in found:
        for name in ("total_s", "computing", "waiting", "reducing", "behind_s"):
            finite(getattr(row, name))
        for name in ("rank", "calls", "late", "last", "dropped"):
            if not isinstance(getattr(row, name), int):
                raise TypeError(f"{name} is no integer")
    return Summaries(path, found)
