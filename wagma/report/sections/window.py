"""The part of a run that a picture shows: some versions of one handle, on all ranks. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wagma.trace.clocks import align
from wagma.trace.files import Event, Timeline
from wagma.trace.summary import WORK

ACTIVITIES = ("computing", "waiting", "reducing")
VERSIONS = 24  # at most

Spans = Sequence[tuple[float, float]]  # begin and end in ms from the window's begin


@dataclass(frozen=True)
class Lane:
    """One rank."""

    rank: int  # whose
    spans: Mapping[str, Spans]  # by activity
    calls: Spans  # from begin to end
    late_ms: Sequence[float]  # ends of the calls whose contribution came too late


@dataclass(frozen=True)
class Window:
    """Some versions of a handle; `syncs`: those of all ranks, with their ends in ms."""

    handle: str
    first: int
    last: int
    length_ms: float
    lanes: Sequence[Lane]
    syncs: Sequence[tuple[int, float]]


def window(timelines: Sequence[Timeline]) -> Window | None:
    """From one version of all ranks to the next, in the middle of the handle with most calls.

    Where there are none, or too far apart, it is as many versions as can be told apart. None: there
    is no call that has ended.
    """
    calls = Counter(
        timeline.collective
        for timeline in timelines
        for event in timeline.events
        if event.kind == "call"
    )
    if not calls:
        return None
    handle = calls.most_common(1)[0][0]
    ranks = sorted(
        (each for each in timelines if each.collective == handle), key=lambda each: each.rank
    )
    offsets = align(timelines)
    moved = {each.rank: offsets[each.clock.key].ns for each in ranks}
    calls_of = {
        each.rank: [event for event in each.events if event.kind == "call"] for each in ranks
    }
    ended: dict[int, int] = {}  # ns, of the versions of all ranks
    for rank, events in calls_of.items():
        for event in events:
            if event.arguments["sync"]:
                end = event.ended_ns + moved[rank]
                ended[event.version] = max(ended.get(event.version, end), end)
    first, last, whole = _versions(
        sorted({event.version for events in calls_of.values() for event in events}), sorted(ended)
    )
    spans = [
        (event.began_ns + moved[each.rank], event.ended_ns + moved[each.rank])
        for each in ranks
        for event in each.events
        if event.kind in ("compute", "call") and first <= event.version <= last
    ]
    begin = ended[first - 1] if whole else min(span[0] for span in spans)
    end = max(span[1] for span in spans)
    lanes = [_lane(each, moved[each.rank] - begin, end - begin) for each in ranks]
    syncs = [
        (version, (ns - begin) / 1e6)
        for version, ns in sorted(ended.items())
        if first <= version <= last
    ]
    return Window(ranks[0].handle, first, last, (end - begin) / 1e6, lanes, syncs)


def _versions(versions: Sequence[int], syncs: Sequence[int]) -> tuple[int, int, bool]:
    """Return first and last version, and whether they span two versions of all ranks."""
    middle = versions[len(versions) // 2]
    before = max((version for version in syncs if version < middle), default=None)
    after = min((version for version in syncs if version >= middle), default=None)
    if before is not None and after is not None and after - before <= VERSIONS:
        return before + 1, after, True
    place = max(0, len(versions) // 2 - VERSIONS // 2)
    return versions[place], versions[min(place + VERSIONS, len(versions)) - 1], False


def _lane(timeline: Timeline, offset: int, length: int) -> Lane:
    """Return the part of a rank's timeline that lies in the window, which is `length` ns long."""

    def cut(kinds: Sequence[str]) -> list[tuple[float, float]]:
        found = []
        for event in timeline.events:
            begin, end = _moved(event, offset)
            if event.kind in kinds and event.span and end > 0 and begin < length:
                found.append((max(begin, 0) / 1e6, min(end, length) / 1e6))
        return found

    spans = {"computing": cut(["compute"]), "waiting": cut(["wait"]), "reducing": cut(WORK)}
    late = [
        _moved(event, offset)[1] / 1e6
        for event in timeline.events
        if event.kind == "call" and event.arguments["late"]
    ]
    return Lane(timeline.rank, spans, cut(["call"]), [ms for ms in late if 0 <= ms <= length / 1e6])


def _moved(event: Event, offset: int) -> tuple[int, int]:
    return event.began_ns + offset, event.ended_ns + offset
