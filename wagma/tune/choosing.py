"""From measured times to the numbers that handles use. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

__all__ = ["best_chunk", "best_direct", "best_switch", "powers"]

Times = Mapping[int, float]  # seconds by bytes of an array


def best_chunk(times: Mapping[int, Times], default: int) -> int:
    """Of several numbers of bytes the one that is fastest over all sizes.

    Of those that are equally fast it is the one nearest to `default`, which is the answer where
    there are no times.
    """
    if not any(times.values()):
        return default
    return min(times, key=lambda chunk: (_sum(times[chunk]), abs(math.log(chunk / default))))


def best_switch(few: Times, parts: Times) -> int:
    """Up to which size few messages are faster than parts, so that as little as possible is lost.

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
    """For what the direct algorithm is used, as far as times of groups of all ranks tell.

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
    """Of logarithms: every size counts alike."""
    return sum(map(math.log, times.values()))


def powers(first: int, last: int, step: int = 2) -> Sequence[int]:
    """first, first * step, ... up to last."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= step
    return sizes
