"""Which ranks reduce together at which version. Pure: no communication, no state.

Groups, of `PartialAllreduce`: for powers of two these are the groups of Algorithm 1 of Li et al.,
"Breaking (Global) Barriers in Parallel Stochastic Optimization with Wait-Avoiding Group Averaging"
(TPDS 2021). Otherwise there are ceil(size / group_size) groups whose sizes differ by at most one,
and their composition changes with the version. Neighbours: see `NeighborExchange`.
"""

from __future__ import annotations

from ._engine import group_of, neighbors_of

__all__ = ["group_of", "groups", "neighbors"]


def groups(
    size: int, group_size: int, version: int, *, grouping: str = "dynamic", seed: int = 0
) -> list[tuple[int, ...]]:
    """All groups of a version, each ascending, in ascending order.

    Args:
        size: number of ranks, at least 1.
        group_size: maximum members of a group, 1 <= group_size <= size.
        version: version of the collective, at least 0.
        grouping: "dynamic"; "fixed": the groups of version 0; "pairs": two ranks each (one of them
            alone where size is odd), drawn from (seed, version), group_size 2.
        seed: of the pairs, at least 0.

    Raises:
        ValueError: an argument is out of its range.
    """
    found: list[tuple[int, ...]] = [
        group_of(0, size, group_size, version, grouping=grouping, seed=seed)
    ]
    seen = set(found[0])
    for rank in range(1, size):
        if rank not in seen:
            group = group_of(rank, size, group_size, version, grouping=grouping, seed=seed)
            found.append(group)
            seen.update(group)
    return found


def neighbors(size: int, graph: str, neighbors: int, version: int) -> list[dict[int, float]]:
    """What every rank gets at a version of a `NeighborExchange`: a row of its matrix each.

    ``neighbors(...)[r][j]`` is the share of rank j's contribution that goes to rank r; ranks that
    give it nothing are not there. Each row is ascending and has r itself. Columns sum to 1, and
    with these graphs rows as well.

    Args:
        size: number of ranks, at least 1.
        graph: "ring" or "exponential".
        neighbors: ranks that each sends to in a version of an exponential graph; 1 for a ring.
        version: version of the collective, at least 0.

    Raises:
        ValueError: an argument is out of its range.
    """
    rows = []
    for rank in range(size):
        senders = neighbors_of(rank, size, graph, neighbors, version)
        share = 1 / (len(senders) + 1)
        rows.append(dict.fromkeys(sorted((*senders, rank)), share))
    return rows
