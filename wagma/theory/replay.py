"""Time of a version that waits for K of P ranks, from their compute times. Pure."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Replay:
    """Result of `replay`.

    Attributes:
        seconds: seconds per version.
        late_share: share of late calls.
    """

    seconds: float
    late_share: float


def replay(computing: npt.NDArray[np.float64], quorum: int, reduction: float) -> Replay:
    """Simulate late="skip" with grace=0.

    Every rank computes for its version and arrives. The `quorum`-th arrival executes a version, and
    the ranks that have arrived begin the next one after the reduction. A rank that arrives at an
    executed version is late: its computation was in vain, and it begins at once with the first
    version that was not executed.

    Args:
        computing: seconds that each rank computes for each version, [versions, ranks].
        quorum: K, 1 to the number of ranks.
        reduction: seconds from the arrival that starts a version to its result.
    """
    versions, ranks = computing.shape
    # Arrivals: time, rank, version.
    arrivals = [(float(computing[0, rank]), rank, 0) for rank in range(ranks)]
    heapq.heapify(arrivals)
    present: list[int] = []
    current, late, calls = 0, 0, 0
    while True:
        now, rank, version = heapq.heappop(arrivals)
        calls += 1
        if version < current:
            late += 1
            going_on = [rank]
        else:
            present.append(rank)
            if len(present) < quorum:
                continue
            current, now, going_on, present = current + 1, now + reduction, present, []
            if current == versions:
                return Replay(now / versions, late / calls)
        for other in going_on:
            heapq.heappush(arrivals, (now + float(computing[current, other]), other, current))
