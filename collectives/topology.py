"""Groups and graphs: the ranks that exchange data at a version. Pure: no communication, no state.

For powers of two the groups of `PartialAllreduce` are those of Algorithm 1 of Li et al., "Breaking
(Global) Barriers in Parallel Stochastic Optimization with Wait-Avoiding Group Averaging" (TPDS
2021). Otherwise there are ceil(size / group_size) groups. Their sizes differ by at most one, and
their members change with the version. For the graphs see `NeighborExchange`.
"""

from ._engine import group_of, neighbors_of, starter_of

__all__ = ["group_of", "groups", "neighbors", "starter_of"]


def groups(
    size: int, group_size: int, version: int, *, grouping: str = "dynamic", seed: int = 0
) -> list[tuple[int, ...]]:
    """Return all groups of a version in ascending order, each with ascending members.

    Args:
        size: number of ranks, at least 1.
        group_size: maximum members of a group, 1 <= group_size <= size.
        version: version of the collective, at least 0.
        grouping: "dynamic"; "fixed": the groups of version 0; "pairs": two ranks each (with an odd
            size one rank is alone), drawn from (seed, version), group_size 2.
        seed: seed of the pairs, at least 0.

    Raises:
        ValueError: an argument is out of its range.
    """
    every: list[tuple[int, ...]] = [
        group_of(0, size, group_size, version, grouping=grouping, seed=seed)
    ]
    seen = set(every[0])
    for rank in range(1, size):
        if rank not in seen:
            group = group_of(rank, size, group_size, version, grouping=grouping, seed=seed)
            every.append(group)
            seen.update(group)
    return every


def default_group_size(size: int) -> int:
    """Return the smallest power of two that is at least the paper's sqrt(P); at most P.

    Args:
        size: number of ranks P, >= 1.
    """
    doublings = 0
    while 4**doublings < size:
        doublings += 1
    return int(min(size, 2**doublings))


def neighbors(size: int, graph: str, neighbors: int, version: int) -> list[dict[int, float]]:
    """Return the matrix of shares at a version of a `NeighborExchange`, one row per rank.

    ``neighbors(...)[r][j]`` is the share of rank j's contribution that goes to rank r; zeros are
    omitted. Each row is ascending and includes r itself. Columns sum to 1, and so do the rows of
    these graphs.

    Args:
        size: number of ranks, at least 1.
        graph: "ring" or "exponential".
        neighbors: number of ranks that each rank of an exponential graph sends to; 1 for a ring.
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
