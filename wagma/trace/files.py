"""The files that ranks write: found, read, and checked to be of one run."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

FORMAT = 1  # otherData.wagma
PATTERN = "*.rank-*.json"
SHOWN_FILES = 3


class TraceError(Exception):
    """What is wrong with the files, and what to do."""


@dataclass(frozen=True)
class Clock:
    """Whose CLOCK_MONOTONIC the times of a file are."""

    boot: str  # of the host, and `namespace` in it: files with the same have one clock
    namespace: str
    realtime_ns: int  # CLOCK_REALTIME minus it, when the handle was made
    # rank 0's clock minus it, measured then, wrong by at most `error_ns`; None: not measured
    to_rank_0_ns: int | None = None
    error_ns: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Return a key that all files with this clock share."""
        return self.boot, self.namespace


@dataclass(frozen=True)
class Event:
    """A span, or a moment (`span` False, `duration_ns` 0), with what the file says of it."""

    kind: str
    name: str
    began_ns: int
    duration_ns: int
    track: int
    span: bool
    arguments: Mapping[str, Any]

    @property
    def ended_ns(self) -> int:
        """Its end."""
        return self.began_ns + self.duration_ns

    @property
    def version(self) -> int:
        """Return the version of the collective."""
        return int(self.arguments["version"])


@dataclass(frozen=True)
class Timeline:
    """One rank's file."""

    path: Path
    handle: str
    collective: str  # a word that the ranks of one handle share, and no other handle has
    rank: int
    size: int
    transport: str
    host: str
    process: str  # of which the file is, unique on its host
    dropped: int  # events that did not fit into WAGMA_TRACE_LIMIT
    clock: Clock
    events: Sequence[Event]
    tracks: Mapping[int, str] = field(default_factory=dict)  # names by number

    def wall_clock(self) -> tuple[int, int] | None:
        """First and last moment, ns since 1970 by the host's clock; None: there are no events."""
        if not self.events:
            return None
        offset = self.clock.realtime_ns
        return (
            min(event.began_ns for event in self.events) + offset,
            max(event.ended_ns for event in self.events) + offset,
        )


def find(places: Iterable[Path]) -> list[Path]:
    """Return the files in `places`: folders, or files themselves.

    Raises:
        TraceError: a place is missing, or a folder has none.
    """
    found: dict[Path, None] = {}
    for place in places:
        if place.is_dir():
            inside = sorted(place.glob(PATTERN))
            if not inside:
                raise TraceError(
                    f"{place} has no timelines ({PATTERN}): run the program with "
                    f"WAGMA_TRACE={place}; a rank that is killed writes none"
                )
            found.update(dict.fromkeys(inside))
        elif place.exists():
            found[place] = None
        else:
            raise TraceError(f"{place} does not exist: name the folder given as WAGMA_TRACE")
    return list(found)


def read(path: Path) -> Timeline:
    """Return the timeline in a file.

    Raises:
        TraceError: it cannot be read, is broken (names the line), or is something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from None
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(
            f"{path}, line {error.lineno}, column {error.colno}: broken JSON ({error.msg}); was "
            "the file cut off while it was copied?"
        ) from None
    return parse(content, path)


def parse(content: Any, path: Path) -> Timeline:
    """Return the timeline that a file's JSON values describe.

    Raises:
        TraceError: it is not that of a timeline, or of another version.
    """
    head = content.get("otherData") if isinstance(content, dict) else None
    if not isinstance(head, dict) or "wagma" not in head:
        raise TraceError(f"{path} is no timeline of one rank, as WAGMA_TRACE makes them")
    if head["wagma"] != FORMAT:
        raise TraceError(
            f"{path} has format {head['wagma']}, this version of wagma reads {FORMAT}: merge it "
            "with the version that wrote it"
        )
    try:
        clock = Clock(**head["clock"])
        events = [_event(each) for each in content["traceEvents"] if each["ph"] in "Xi"]
        names = {
            int(each["tid"]): str(each["args"]["name"])
            for each in content["traceEvents"]
            if each["ph"] == "M" and each["name"] == "thread_name"
        }
        size, number = int(head["size"]), head["collective"]
        # Ranks without a number in common have at least a name and a size.
        collective = number if int(number, 16) else f"{head['handle']}/{size}"
        return Timeline(
            path=path,
            handle=head["handle"],
            collective=collective,
            rank=int(head["rank"]),
            size=size,
            transport=head["transport"],
            host=head["host"],
            process=head["process"],
            dropped=int(head["dropped"]),
            clock=clock,
            events=events,
            tracks=names,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(
            f"{path} is no timeline that wagma wrote: {type(error).__name__} {error}"
        ) from None


def _event(each: Mapping[str, Any]) -> Event:
    return Event(
        kind=each["cat"],
        name=each["name"],
        began_ns=round(each["ts"] * 1000),
        duration_ns=round(each.get("dur", 0) * 1000),
        track=int(each["tid"]),
        span=each["ph"] == "X",
        arguments=each["args"],
    )


# ---- one run -------------------------------------------------------------------------------------
def check_one_run(timelines: Sequence[Timeline]) -> None:
    """Refuse files that cannot belong to one timeline.

    Files are of one run if they are of one collective or one process, or if their times overlap:
    handles of a program may follow each other, or be of different ranks.

    Raises:
        TraceError: they are of several runs; or two are of the same rank of a collective.
    """
    holders: dict[tuple[str, int], Timeline] = {}
    for timeline in timelines:
        other = holders.setdefault((timeline.collective, timeline.rank), timeline)
        if other is not timeline:
            raise TraceError(
                f"{other.path} and {timeline.path} are both of rank {timeline.rank} of the handle "
                f"{timeline.handle!r}: give one of them"
            )
    runs = _runs(timelines)
    if len(runs) > 1:
        raise TraceError(
            f"mixed runs: {'; '.join(map(_describe, runs))}. Give the files of one run; a folder "
            "of its own for each (WAGMA_TRACE) keeps them apart"
        )


def missing_ranks(timelines: Iterable[Timeline]) -> list[str]:
    """'rank 3 of 4 of the handle 'model'', for each that has no file."""
    present: dict[str, set[int]] = defaultdict(set)
    sample: dict[str, Timeline] = {}
    for timeline in timelines:
        present[timeline.collective].add(timeline.rank)
        sample[timeline.collective] = timeline
    return [
        f"rank {rank} of {each.size} of the handle {each.handle!r}"
        for collective, each in sample.items()
        for rank in range(each.size)
        if rank not in present[collective]
    ]


def _runs(timelines: Sequence[Timeline]) -> list[list[Timeline]]:
    """Return the files of each run."""
    groups: dict[tuple[str, ...], list[Timeline]] = defaultdict(list)
    for timeline in timelines:
        groups["collective", timeline.collective].append(timeline)
        groups["process", *timeline.clock.key, timeline.process].append(timeline)
    linked = [group for group in groups.values() if len(group) > 1]
    end: int | None = None
    running: list[Timeline] = []
    dated = [(span, t) for t in timelines if (span := t.wall_clock()) is not None]
    for (began, ended), timeline in sorted(dated, key=lambda each: each[0]):
        if end is not None and began > end:
            linked.append(running)
            running = []
        running.append(timeline)
        end = ended if end is None else max(end, ended)
    linked.append(running)
    home = {id(timeline): [timeline] for timeline in timelines}
    for group in linked:
        merged: list[Timeline] = []
        for timeline in group:
            if home[id(timeline)] is not merged:
                merged.extend(home[id(timeline)])
                for each in home[id(timeline)]:
                    home[id(each)] = merged
    runs = {id(members): members for members in home.values()}
    return list(runs.values())


def _describe(run: Sequence[Timeline]) -> str:
    names = ", ".join(str(timeline.path) for timeline in run[:SHOWN_FILES])
    more = f" and {len(run) - SHOWN_FILES} more" if len(run) > SHOWN_FILES else ""
    times = [span for timeline in run if (span := timeline.wall_clock()) is not None]
    if not times:
        return names + more
    began = datetime.fromtimestamp(min(span[0] for span in times) / 1e9).astimezone()
    return f"{names}{more} ({began:%Y-%m-%d %H:%M:%S})"
