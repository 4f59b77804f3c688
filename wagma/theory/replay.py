"""What K of P ranks take for a version, from what each of them computes. Pure."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Replay", "replay"]


@dataclass(frozen=True)
class Replay:
    """What a replay of late="skip" gives.

    Attributes:
        seconds: per version.
        late_share: of the calls.
    """

    seconds: float
    late_share: float


def replay(computing: npt.NDArray[np.float64], quorum: int, reduction: float) -> Replay:
    """Run late="skip", grace=0 in time that is only counted.

    Every rank computes for its version and arrives. A version is executed at the `quorum`-th
    arrival, and those that are present go on with the next one after the reduction. A rank that
    arrives at a version that was executed is late: it has computed in vain, and at once goes on
    with the version that nobody has executed yet.

    Args:
        computing: seconds that each rank computes for each version, [versions, ranks].
        quorum: K, 1 to the number of ranks.
        reduction: seconds from the arrival that starts a version to its result.
    """
    versions, ranks = computing.shape
    # Who arrives when, at which version.
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
