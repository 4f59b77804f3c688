"""After how many versions the groups of a collective come again. Pure."""

from __future__ import annotations

import math

from wagma.collectives.options import Grouping

__all__ = ["group_cycle"]


def group_cycle(size: int, group_size: int, grouping: Grouping) -> int:
    """Versions after which all groups repeat, a multiple of the fewest; see csrc/topology.c.

    Args:
        size: ranks P, >= 1.
        group_size: S, 1 to P.
        grouping: of the collective; "pairs" are drawn, never repeat, and count as 1.
    """
    if grouping != "dynamic":
        return 1
    if size.bit_count() == group_size.bit_count() == 1:  # the bits of Algorithm 1, in turns
        bits = size.bit_length() - 1
        return bits // math.gcd(bits, group_size.bit_length() - 1) if bits else 1
    groups = -(-size // group_size)
    base = max(2, size // groups)
    steps = 0  # of the slant until it begins again with the smallest
    while base**steps < groups:
        steps += 1
    return max(1, steps * groups)
