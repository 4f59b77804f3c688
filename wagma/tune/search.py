"""Which schedules are compared, and what comes of it. Pure, but for the times that are given."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from wagma.collectives.tuning import Schedule

CHUNKS = (64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20)
IN_FLIGHT = 4  # chunks of a stream that have memory at a time: csrc/messages/exchange.h
EVERYTHING = 2**62  # bytes: no array is larger
MANY = 2**31 - 1  # members: no group has more

Times = Mapping[int, float]  # seconds by bytes of an array
# Seconds of a call with each of the schedules, of arrays of so many bytes.
Measure: TypeAlias = Callable[[int, Sequence[Schedule]], Sequence[float]]


@dataclass(frozen=True)
class Found:
    """What was measured."""

    ranks: int  # that measured
    schedule: Schedule  # for handles
    few: Times  # seconds by bytes with few messages, and `parts`, with the rest of the schedule
    parts: Times
    halving: Times  # in parts with fewer messages, and `direct`, at once; empty if that is the same
    direct: Times


def points(ranks: int, largest: int) -> int:
    """Return how often `search` advances."""
    algorithms = 2 * len(_parted(largest)) if _differ(ranks) else 0
    return algorithms + len(CHUNKS) * len(_large(largest)) + 2 * len(_sizes(largest))


def memory(ranks: int, largest: int) -> int:
    """Return the most bytes that a rank needs: an array, and the chunks of handles in turn."""
    return largest + sum(min(largest, IN_FLIGHT * chunk * ranks) for chunk in CHUNKS)


def search(
    ranks: int, largest: int, default: Schedule, measure: Measure, advance: Callable[[], None]
) -> Found:
    """Compare schedules of `ranks` ranks, two at least.

    Args:
        ranks: of the handles; a group of all of them is measured.
        largest: bytes of the largest array.
        default: what is used where nothing was measured.
        measure: is called alike on all ranks.
        advance: called for each of `points`.
    """

    def times(sizes: Sequence[int], schedules: Sequence[Schedule]) -> list[dict[int, float]]:
        """Return the seconds by size, for each of the schedules."""
        found: list[dict[int, float]] = [{} for _ in schedules]
        for size in sizes:
            for of_one, seconds in zip(found, measure(size, schedules), strict=True):
                of_one[size] = seconds
                advance()
        return found

    schedule = replace(default, schedule_switch=1)
    direct: Times = {}
    halving: Times = {}
    if _differ(ranks):
        direct, halving = times(
            _parted(largest),
            [replace(schedule, schedule_part=1, schedule_direct=members) for members in (MANY, 1)],
        )
        part, members = best_direct(
            ranks, direct, halving, (default.schedule_part, default.schedule_direct)
        )
        schedule = replace(schedule, schedule_part=part, schedule_direct=members)
    by_chunk: dict[int, dict[int, float]] = {chunk: {} for chunk in CHUNKS}
    for size in _large(largest):
        different = different_chunks(_message(size, ranks, schedule))
        tried = [replace(schedule, schedule_chunk=chunk) for chunk in different]
        seconds = measure(size, tried) if tried else []
        for chunk in CHUNKS:
            if tried:  # larger ones than the message are all the same
                by_chunk[chunk][size] = seconds[min(CHUNKS.index(chunk), len(seconds) - 1)]
            advance()
    chunk = best_chunk(by_chunk, default.schedule_chunk)
    schedule = replace(schedule, schedule_chunk=chunk)
    few, parts = times(
        _sizes(largest), [replace(schedule, schedule_switch=switch) for switch in (EVERYTHING, 1)]
    )
    schedule = replace(schedule, schedule_switch=best_switch(few, parts))
    return Found(ranks, schedule, few, parts, halving, direct)


def different_chunks(message: int) -> Sequence[int]:
    """Return the CHUNKS that cut a message of so many bytes, and one that does not, if any cut."""
    shorter = [chunk for chunk in CHUNKS if chunk < message]
    return CHUNKS[: len(shorter) + 1] if shorter else ()


def at_once(size: int, ranks: int, schedule: Schedule) -> bool:
    """Return whether parts of an array are sent to all at once (csrc/protocol/schedule.c)."""
    return ranks <= schedule.schedule_direct and -(-size // ranks) >= schedule.schedule_part


def _message(size: int, ranks: int, schedule: Schedule) -> int:
    """Return the bytes of the longest part of an array that goes to one rank, before it is cut."""
    parts = ranks if at_once(size, ranks, schedule) else max(_prime_factors(ranks))
    return -(-size // parts)


def _differ(ranks: int) -> bool:
    """Return whether halving differs from direct: for any number of ranks but a prime one."""
    return len(_prime_factors(ranks)) > 1


def _prime_factors(number: int) -> list[int]:
    """Return the prime factors in ascending order, with repetition."""
    for factor in range(2, number):
        if number % factor == 0:
            return [factor, *_prime_factors(number // factor)]
    return [number]


def _sizes(largest: int) -> Sequence[int]:
    return powers(1 << 10, largest)


def _parted(largest: int) -> Sequence[int]:
    """Return the sizes of arrays that are exchanged in parts."""
    return powers(min(16 << 10, largest), largest, 4)


def _large(largest: int) -> Sequence[int]:
    """Return the sizes of arrays that are cut into chunks."""
    return powers(min(256 << 10, largest), largest, 4)


def best_chunk(times: Mapping[int, Times], default: int) -> int:
    """Return the chunk size in bytes that is fastest over all sizes.

    If several are equally fast, return the one nearest to `default`; without times, `default`.
    """
    if not any(times.values()):
        return default
    return min(times, key=lambda chunk: (_sum(times[chunk]), abs(math.log(chunk / default))))


def best_switch(few: Times, parts: Times) -> int:
    """Return the size up to which to use few messages, so that the total time is least.

    One size that is measured wrong does not move it far: all sizes together decide.

    Returns:
        One of the sizes; 1 if parts are always faster.
    """
    sizes = sorted(few)

    def total(switch: int) -> float:
        return _sum({size: (few if size <= switch else parts)[size] for size in sizes})

    return min((1, *sizes), key=lambda switch: (total(switch), switch))


def best_direct(
    ranks: int, direct: Times, halving: Times, default: tuple[int, int]
) -> tuple[int, int]:
    """Return the limits of the direct algorithm that times of groups of all ranks suggest.

    Args:
        ranks: of each group.
        direct: its times.
        halving: those of the other algorithm, for the same arrays.
        default: what is used where times say nothing of it: longer parts, larger groups.

    Returns:
        Bytes of a member's part, from which on it is used, and members, up to which it is.
    """
    part, members = default
    switch = best_switch(halving, direct)
    faster = [size for size in direct if size > switch]
    if faster:
        return (-(-min(faster) // ranks) if switch > 1 else 1), max(ranks, members)
    if -(-switch // ranks) < part:  # such parts were not tried
        return default
    return part, max(min(ranks - 1, members), 1)


def _sum(times: Times) -> float:
    """Return the sum of the times' logarithms: every size counts alike."""
    return sum(map(math.log, times.values()))


def powers(first: int, last: int, step: int = 2) -> Sequence[int]:
    """Return first, first * step, ... up to last."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= step
    return sizes
