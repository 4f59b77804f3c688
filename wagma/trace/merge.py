"""Files of several ranks as one timeline, in the Trace Event Format of Perfetto. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .clocks import Offset, align
from .files import FORMAT, Event, Timeline

# (collective, version) -> rank -> ns on the common clock
Arrivals = Mapping[tuple[str, int], Mapping[int, int]]
Last = tuple[int, int]  # rank, ns after the first of those that were asked about


def merge(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """Return one timeline with a process per rank; its times are us since the first event.

    A wait for others says in ``args.last`` which of them came last.
    """
    offsets = align(timelines)
    came = arrivals(timelines, offsets)
    zero = min(
        (
            event.began_ns + offsets[timeline.clock.key].ns
            for timeline in timelines
            for event in timeline.events
        ),
        default=0,
    )
    events: list[dict[str, Any]] = []
    heads: list[dict[str, Any]] = []
    several = len({timeline.collective for timeline in timelines}) > 1
    order = {collective: i for i, collective in enumerate(_collectives(timelines))}
    ordered = sorted(timelines, key=lambda each: (order[each.collective], each.rank))
    for number, timeline in enumerate(ordered):
        offset = offsets[timeline.clock.key]
        process = number if several else timeline.rank
        name = f"rank {timeline.rank}" + (f" ({timeline.handle})" if several else "")
        heads.extend(_names(timeline, process, name, number))
        groups = _groups(timeline)
        for event in timeline.events:
            record = _record(event, process, event.began_ns + offset.ns - zero)
            if event.kind == "wait" and event.arguments.get("for") in ("quorum", "sync", "data"):
                last = last_to_come(came, timeline, event.version, groups.get(event.version))
                if last is not None:
                    record["args"] = {**event.arguments, "last": last[0]}
            events.append(record)
    # Spans that begin together: the longer one is around the other.
    events.sort(key=lambda each: (each["ts"], -each.get("dur", 0)))
    return {
        "displayTimeUnit": "ns",
        "otherData": {"wagma-merged": FORMAT, "files": [_about(t, offsets) for t in ordered]},
        "traceEvents": heads + events,
    }


def arrivals(timelines: Iterable[Timeline], offsets: Mapping[Any, Offset]) -> Arrivals:
    """Return when the contributions of each version were published, on the common clock."""
    found: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for timeline in timelines:
        offset = offsets[timeline.clock.key].ns
        for event in timeline.events:
            if event.kind == "arrival":
                ranks = found[timeline.collective, event.version]
                ranks[timeline.rank] = event.began_ns + offset
    return found


def last_to_come(
    came: Arrivals, timeline: Timeline, version: int, group: Iterable[int] | None
) -> Last | None:
    """Return the last rank of `group` to arrive, and its lag behind the first arrival, in ns.

    `group` is None for all ranks. Return None if fewer than two have arrived.
    """
    ranks = came.get((timeline.collective, version), {})
    times = {rank: ns for rank, ns in ranks.items() if group is None or rank in group}
    if len(times) < 2:
        return None
    last = max(times, key=times.__getitem__)
    return last, times[last] - min(times.values())


def _collectives(timelines: Iterable[Timeline]) -> list[str]:
    return list(dict.fromkeys(timeline.collective for timeline in timelines))


def _groups(timeline: Timeline) -> dict[int, frozenset[int]]:
    """Return this rank's groups by version, without those of all ranks."""
    return {
        event.version: frozenset(event.arguments["group"])
        for event in timeline.events
        if event.kind == "call" and "group" in event.arguments
    }


def _record(event: Event, process: int, ns: int) -> dict[str, Any]:
    record: dict[str, Any] = {
        "ph": "X" if event.span else "i",
        "pid": process,
        "tid": event.track,
        "cat": event.kind,
        "name": event.name,
        "ts": ns / 1000,
        "args": event.arguments,
    }
    if event.span:
        record["dur"] = event.duration_ns / 1000
    else:
        record["s"] = "t"
    return record


def _names(timeline: Timeline, process: int, name: str, place: int) -> Iterable[dict[str, Any]]:
    """Yield what a viewer shows for the process and its tracks."""
    yield _meta("process_name", process, 0, name=name)
    yield _meta("process_labels", process, 0, labels=timeline.host)
    yield _meta("process_sort_index", process, 0, sort_index=place)
    for track, title in timeline.tracks.items():
        yield _meta("thread_name", process, track, name=title)
        yield _meta("thread_sort_index", process, track, sort_index=track)


def _meta(what: str, process: int, track: int, **arguments: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": track, "name": what, "args": arguments}


def _about(timeline: Timeline, offsets: Mapping[Any, Offset]) -> dict[str, Any]:
    offset = offsets[timeline.clock.key]
    return {
        "file": timeline.path.name,
        "handle": timeline.handle,
        "rank": timeline.rank,
        "host": timeline.host,
        "events": len(timeline.events),
        "dropped": timeline.dropped,
        "clock_offset_ns": offset.ns,
        "clock_error_ns": offset.error_ns,
    }
