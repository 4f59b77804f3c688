"""Which schedules are compared, and what comes of it. Every function but `points` is collective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wagma.collectives._engine import check_options
from wagma.collectives.tuning import Schedule
from wagma.tune.choosing import Times, best_chunk, best_switch, direct_members, powers

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Found", "points", "search"]

CHUNKS = (64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20)
EVERYTHING = 2**62  # bytes: no array is larger
MANY = 2**31 - 1  # members: no group has more


@dataclass(frozen=True)
class Found:
    """What was measured.

    Attributes:
        schedule: for handles.
        few: seconds by bytes with few messages, and `parts`, with the rest of the schedule.
    """

    schedule: Schedule
    few: Times
    parts: Times


def points(size: int, largest: int) -> int:
    """How often `search` advances, for so many ranks."""
    algorithms = 2 * len(_large(largest)) if _differ(size) else 0
    return algorithms + len(CHUNKS) * len(_large(largest)) + 2 * len(_sizes(largest))


def search(comm: MPI.Intracomm, largest: int, seconds: float, advance: Callable[[], None]) -> Found:
    """Compares schedules with the ranks of `comm`.

    Args:
        comm: the ranks, two at least.
        largest: bytes of the largest array.
        seconds: for each point.
        advance: called after each.
    """

    def times(sizes: Sequence[int], schedules: Sequence[Schedule]) -> list[dict[int, float]]:
        """Seconds by size, for each of the schedules."""
        from wagma.tune.measuring import measure

        by_size = {size: measure(comm, size, schedules, seconds, advance) for size in sizes}
        return [
            {size: measured[number] for size, measured in by_size.items()}
            for number in range(len(schedules))
        ]

    direct = int(check_options({"size": comm.size, "count": 0})["schedule_direct"])
    if _differ(comm.size):
        at_once, halving = times(
            _large(largest),
            [Schedule(schedule_switch=1, schedule_direct=members) for members in (MANY, 1)],
        )
        direct = direct_members(comm.size, at_once, halving, direct)
    chunked = times(
        _large(largest),
        [
            Schedule(schedule_switch=1, schedule_chunk=chunk, schedule_direct=direct)
            for chunk in CHUNKS
        ],
    )
    chunk = best_chunk(dict(zip(CHUNKS, chunked, strict=True)))
    few, parts = times(
        _sizes(largest),
        [
            Schedule(schedule_switch=switch, schedule_chunk=chunk, schedule_direct=direct)
            for switch in (EVERYTHING, 1)
        ],
    )
    schedule = Schedule(best_switch(few, parts), chunk, direct)
    return Found(schedule, few, parts)


def _differ(size: int) -> bool:
    """Whether halving is something else than direct: for any number of ranks but a prime one."""
    return any(size % factor == 0 for factor in range(2, size))


def _sizes(largest: int) -> Sequence[int]:
    return powers(1 << 10, largest)


def _large(largest: int) -> Sequence[int]:
    """Of arrays that are cut into chunks."""
    return powers(min(256 << 10, largest), largest, 4)
