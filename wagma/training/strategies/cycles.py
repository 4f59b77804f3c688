"""After how many versions the groups of a collective come again, and how to come to some."""

from __future__ import annotations

import math

import torch

from wagma.collectives import PartialAllreduce
from wagma.collectives.options import Grouping

__all__ = ["group_cycle", "pass_empty"]


def group_cycle(size: int, group_size: int, grouping: Grouping) -> int:
    """Versions after which all groups repeat, a multiple of the fewest (protocol/topology.c).

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


def pass_empty(collective: PartialAllreduce, array: torch.Tensor, version: int) -> None:
    """Pass through versions without weight until those of `version` are next; collective.

    Groups and synchronisations are then those of `version` (pairs, which are drawn, stay others).
    One version at least is passed, so that no average ever holds what ranks had published before.

    Args:
        collective: of all ranks.
        array: for the calls, which leave it as it is.
        version: of the collective, in some process.
    """
    used = collective.options
    groups = group_cycle(collective.size, int(used.group_size or 1), used.grouping)
    cycle = math.lcm(groups, int(used.sync_period or 1))
    for _ in range((version - collective.version) % cycle or cycle):
        collective.sync(array, weight=0.0)
