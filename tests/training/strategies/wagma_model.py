"""WAGMA-SGD in numpy: what every rank's model has to be, given who arrived when.

Written from the paper (Algorithms 1 and 2) and the stated semantics of the collective, and from
nothing in wagma: of a run it takes only the recorded order of arrivals, checks that it was allowed,
and computes all models from the first on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Arrival:
    """What a rank recorded of one version: `sources` maps contributors to their versions."""

    version: int
    late: bool
    merged: bool
    weight: float
    sources: dict[int, int]


def group(rank: int, size: int, group_size: int, version: int) -> tuple[int, ...]:
    """Algorithm 1, for powers of two: the ranks that log2(S) pairwise exchanges connect."""
    dimensions, phases = size.bit_length() - 1, group_size.bit_length() - 1
    shift = version * phases % dimensions
    members = {rank}
    for phase in range(phases):
        members |= {member ^ 1 << (shift + phase) % dimensions for member in members}
    return tuple(sorted(members))


def check_record(
    record: list[list[Arrival]],
    group_of: Callable[[int, int], tuple[int, ...]],
    period: int,
    window: int,
) -> None:
    """Whether these arrivals may happen: groups, synchronisation, agreement, staleness.

    `group_of(rank, version)` is the group of a rank, ascending.
    """
    size = len(record)
    taken: dict[tuple[int, tuple[int, ...]], dict[int, int]] = {}
    for rank, arrivals in enumerate(record):
        newest = -1  # version that this rank took part in or merged last
        for t, arrival in enumerate(arrivals):
            where = f"rank {rank}, version {t}: {arrival}"
            assert arrival.version == t, where
            synchronises = (t + 1) % period == 0
            if not arrival.merged:
                assert arrival.late and not synchronises, where
                continue
            u = max(arrival.sources.values())  # with a quorum of one somebody is fresh
            last_sync = t - t % period - 1
            assert t <= u < last_sync + period + 1, where
            assert not arrival.late or u > newest, where  # nothing is merged twice
            newest = max(u, newest)
            members = tuple(range(size)) if synchronises else group_of(rank, u)
            assert tuple(sorted(arrival.sources)) == members, where
            assert taken.setdefault((u, members), arrival.sources) == arrival.sources, where
            assert arrival.late == (u != t or arrival.sources[rank] != t), where
            assert arrival.weight == len(members) + arrival.late, where
            oldest = min(arrival.sources.values())
            assert oldest >= max(last_sync, u - window - 1), where
            assert not synchronises or oldest == t, where


def replay(
    record: list[list[Arrival]], initial: Vector, local_step: Callable[[int, int, Vector], Vector]
) -> list[list[Vector]]:
    """The model of each rank after each version, from the same `initial` on all ranks.

    `local_step(rank, version, model)` is the model after the rank's own step.
    """
    ranks = range(len(record))
    published: dict[tuple[int, int], Vector] = {(rank, -1): initial for rank in ranks}
    models: list[list[Vector]] = [[] for _ in ranks]
    progress = True
    while progress:
        progress = False
        for rank in ranks:
            while len(models[rank]) < len(record[rank]):
                t = len(models[rank])
                arrival = record[rank][t]
                if (rank, t) not in published:
                    before = models[rank][-1] if t else initial
                    published[rank, t] = local_step(rank, t, before)
                if any(source not in published for source in arrival.sources.items()):
                    break  # what this rank received has not been computed yet
                models[rank].append(_average(arrival, published, published[rank, t]))
                progress = True
    assert all(len(models[rank]) == len(record[rank]) for rank in ranks), "a circle of arrivals"
    return models


def _average(arrival: Arrival, published: dict[tuple[int, int], Vector], own: Vector) -> Vector:
    """Algorithm 2, lines 9 to 17."""
    if not arrival.merged:
        return own
    total = np.zeros_like(own)
    for source in sorted(arrival.sources.items()):
        total += published[source]
    if arrival.late:
        return np.asarray((total + own) / (len(arrival.sources) + 1))
    return np.asarray(total / len(arrival.sources))
