"""One clock for files of several hosts. Pure.

Files of one host have the same CLOCK_MONOTONIC and need nothing. Between hosts there is what the
ranks measured by messages when a handle was made (`Clock.to_rank_0_ns`); without that, the hosts'
wall clocks, which are as right as what sets them.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .files import Timeline

Key = tuple[str, str]


@dataclass(frozen=True)
class Offset:
    """What is added to the times of a clock to have those of the common one."""

    ns: int
    error_ns: int | None  # by how much it can be wrong; None: unknown, by the hosts' wall clocks


def align(timelines: Sequence[Timeline]) -> dict[Key, Offset]:
    """Return offsets by `Clock.key` to the clock of the first collective's lowest rank."""
    first = timelines[0]
    base = min(
        (each for each in timelines if each.collective == first.collective),
        key=lambda each: each.rank,
    )
    offsets = _measured(base.clock.key, _edges(timelines))
    for timeline in timelines:
        if timeline.clock.key not in offsets:
            apart = timeline.clock.realtime_ns - base.clock.realtime_ns
            offsets[timeline.clock.key] = Offset(apart, None)
    return offsets


def _edges(timelines: Iterable[Timeline]) -> dict[Key, list[tuple[Key, Offset]]]:
    """From a clock to others, with what is added to the times of those to have its own."""
    zeros = {each.collective: each.clock.key for each in timelines if each.rank == 0}
    edges: dict[Key, list[tuple[Key, Offset]]] = defaultdict(list)
    for each in timelines:
        clock, zero = each.clock, zeros.get(each.collective)
        if zero is None or zero == clock.key or clock.to_rank_0_ns is None:
            continue
        edges[zero].append((clock.key, Offset(clock.to_rank_0_ns, clock.error_ns)))
        edges[clock.key].append((zero, Offset(-clock.to_rank_0_ns, clock.error_ns)))
    return edges


def _measured(base: Key, edges: dict[Key, list[tuple[Key, Offset]]]) -> dict[Key, Offset]:
    """Return the offsets of clocks compared with `base`, each by the path of smallest error."""
    found: dict[Key, Offset] = {}
    ways: list[tuple[int, int, Key]] = [(0, 0, base)]
    while ways:
        error, ns, key = heapq.heappop(ways)
        if key in found:
            continue
        found[key] = Offset(ns, error)
        for other, offset in edges.get(key, ()):
            heapq.heappush(ways, (error + (offset.error_ns or 0), ns + offset.ns, other))
    return found
