"""The period of a collective's groups, and how to advance to a version's groups."""

import math

import torch

from wagma.collectives import PartialAllreduce
from wagma.collectives.options import Grouping


def group_cycle(size: int, group_size: int, grouping: Grouping) -> int:
    """Return a number of versions after which all groups repeat; see protocol/topology.c.

    Args:
        size: number of ranks P, >= 1.
        group_size: S, 1 to P.
        grouping: grouping of the collective; "pairs" are random, never repeat, and count as 1.
    """
    if grouping != "dynamic":
        return 1
    if size.bit_count() == group_size.bit_count() == 1:  # the bits of Algorithm 1, in turns
        bits = size.bit_length() - 1
        return bits // math.gcd(bits, group_size.bit_length() - 1) if bits else 1
    groups = -(-size // group_size)
    base = max(2, size // groups)
    steps = 0  # until the strides begin again with the smallest
    while base**steps < groups:
        steps += 1
    return max(1, steps * groups)


def pass_empty(collective: PartialAllreduce, array: torch.Tensor, version: int) -> None:
    """Make versions of weight 0 until the groups of `version` come next; collective.

    Groups and synchronisations then are those of `version`, but not random pairs. It makes at least
    one version, so that no average contains what ranks published before.

    Args:
        collective: over all ranks.
        array: passed to the calls, which do not change it.
        version: version to continue with, as counted by an earlier process.
    """
    used = collective.options
    groups = group_cycle(collective.size, int(used.group_size or 1), used.grouping)
    cycle = math.lcm(groups, int(used.sync_period or 1))
    for _ in range((version - collective.version) % cycle or cycle):
        collective.sync(array, weight=0.0)
