"""The files of a folder, each by what is in it and not by its name."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wagma.report.contents import (
    ROW,
    read_benchmark,
    read_divisions,
    read_goals,
    read_merged,
    read_simulation,
    read_summaries,
    read_timeline,
    read_trace,
    read_training,
)
from wagma.report.formats import FormatError, clean, loads
from wagma.report.records import Found, Skipped, Source, Trace
from wagma.trace.files import Timeline

# What a report is made of: kind, and what makes a file of it.
KINDS = {
    "benchmark": "python -m wagma bench KIND --format json > FILE",
    "goals": "python -m wagma bench table --json FILE",
    "simulation": "python -m wagma simulate --json FILE",
    "training": "python -m wagma bench training --json FILE, python -m wagma demo --json FILE",
    "heterogeneous cluster": "python -m wagma bench heterogeneous --out DIR",
    "timeline": "WAGMA_TRACE=DIR python train.py",
    "merged timelines": "python -m wagma trace merge DIR -o FILE",
    "summary of timelines": "python -m wagma trace summary DIR --json > FILE",
}


def read(folder: Path) -> Found:
    """Return all files of `folder` and the folders in it, in the order of their names.

    Files that cannot be used are told in `Found.skipped`; hidden files and folders are not looked
    at, nor is what is not named .json.
    """
    found = Found()
    timelines: dict[str, list[Timeline]] = {}
    for path in _files(folder, found):
        name = clean(path.relative_to(folder).as_posix())
        try:
            content = loads(path.read_bytes())
            kind = _kind(content)
            if kind == "timeline":
                timeline = read_timeline(name, content)
                timelines.setdefault(clean(path.parent.relative_to(folder).as_posix()), []).append(
                    timeline
                )
            else:
                _READERS[kind](found, name, content)
        except OSError as error:
            found.skipped.append(Skipped(name, f"it cannot be read: {error.strerror}"))
        except FormatError as error:
            found.skipped.append(Skipped(name, str(error)))
        except (
            AttributeError,
            IndexError,
            KeyError,
            OverflowError,
            TypeError,
            ValueError,
        ) as error:
            found.skipped.append(
                Skipped(name, f"it looks like a {kind}, but: {type(error).__name__} {error}")
            )
        else:
            found.sources.append(_source(name, kind, content))
    _add_traces(found, timelines)
    return found


def _files(folder: Path, found: Found) -> Iterator[Path]:
    def skip(error: OSError) -> None:
        inside = clean(Path(error.filename).relative_to(folder).as_posix())
        found.skipped.append(Skipped(inside, f"it cannot be read: {error.strerror}"))

    for here, folders, names in os.walk(folder, onerror=skip):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(".json") and not name.startswith("."):
                yield Path(here) / name


def _add_traces(found: Found, timelines: Mapping[str, list[Timeline]]) -> None:
    """Add the timelines of each folder; drop a merged file of the same timelines."""
    merged, found.traces = found.traces, []
    for folder, ranks in timelines.items():
        try:
            found.traces.append(read_trace(folder, ranks))
        except FormatError as error:
            _skip(found, {str(timeline.path) for timeline in ranks}, folder, str(error))
    for trace in merged:
        same = next((each for each in found.traces if _contents(each) == _contents(trace)), None)
        if same is None:
            found.traces.append(trace)
        else:
            why = f"it was merged from the timelines in {same.name}, which are shown"
            _skip(found, {trace.name}, trace.name, why)


def _skip(found: Found, paths: set[str], name: str, why: str) -> None:
    """Move sources to the skipped files."""
    found.sources = [source for source in found.sources if source.path not in paths]
    found.skipped.append(Skipped(name, why))


def _contents(trace: Trace) -> set[tuple[str, int, int]]:
    return {(each.handle, each.rank, len(each.events)) for each in trace.timelines}


# ---- what is in a file ---------------------------------------------------------------------------


def _kind(content: Any) -> str:
    """Return a key of `KINDS`; FormatError if it is none of them."""
    if isinstance(content, list) and content:
        if all(isinstance(row, dict) and row.keys() == ROW for row in content):
            return "summary of timelines"
    elif isinstance(content, dict):
        head = content.get("otherData")
        if isinstance(head, dict):
            if "wagma-merged" in head:
                return "merged timelines"
            if "wagma" in head:
                return "timeline"
        for kind, keys in _KEYS.items():
            if keys <= content.keys():
                return kind
    raise FormatError("it is nothing that wagma makes reports of")


_KEYS = {
    "benchmark": {"schema_version", "settings", "points"},
    "goals": {"launches", "table"},
    "simulation": {"wagma", "settings", "rows"},
    "training": {"imbalance", "settings", "runs", "measures"},
    "heterogeneous cluster": {"relative_times", "settings", "runs", "smallest"},
}


def _source(name: str, kind: str, content: Any) -> Source:
    environment = content.get("environment") if isinstance(content, dict) else None
    known = environment if isinstance(environment, dict) else {}
    command = known.get("command")
    return Source(
        name,
        kind,
        {key: value for key, value in known.items() if key != "command"},
        command if isinstance(command, str) else None,
    )


Reader = Callable[[Found, str, Any], None]


_READERS: Mapping[str, Reader] = {
    "benchmark": lambda found, name, content: found.benchmarks.append(
        read_benchmark(name, content)
    ),
    "goals": lambda found, name, content: found.goals.append(read_goals(name, content)),
    "simulation": lambda found, name, content: found.simulations.append(
        read_simulation(name, content)
    ),
    "training": lambda found, name, content: found.trainings.append(read_training(name, content)),
    "heterogeneous cluster": lambda found, name, content: found.divisions.append(
        read_divisions(name, content)
    ),
    "merged timelines": lambda found, name, content: found.traces.append(
        read_merged(name, content)
    ),
    "summary of timelines": lambda found, name, content: found.summaries.append(
        read_summaries(name, content)
    ),
}
