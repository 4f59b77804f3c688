"""LogGP of messages between two ranks, from the times of round trips. Pure.

n messages of k bytes go one way, and one without data comes back: by LogGP (Alexandrov et al.,
1995) that takes 2 (L + 2 o) + (n - 1) g + n k G seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wagma.simulate.fitting import nonnegative

SIZES = (0, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20)  # bytes of a message
BURSTS = (1, 4)  # messages of a round trip


@dataclass(frozen=True)
class RoundTrip:
    """What a round trip took.

    Attributes:
        messages: n, that go one after the other.
        size: k, bytes of each.
        seconds: until the answer is there.
    """

    messages: int
    size: int
    seconds: float


@dataclass(frozen=True)
class LogGP:
    """Numbers of a network, as those of `wagma.simulate.Network`; seconds."""

    latency: float
    overhead: float
    gap: float
    gap_per_byte: float
    reduce_per_byte: float


def points(largest: int) -> list[tuple[int, int]]:
    """Return the messages of each kind of round trip, and their bytes; `largest`: together."""
    return [(count, size) for size in SIZES for count in BURSTS if count * size <= largest]


def fit(trips: Sequence[RoundTrip], sending: float, reduce_per_byte: float) -> LogGP:
    """Return the numbers with which the times of round trips differ least from the measured ones.

    Least squares of the relative differences, so that short messages count as much as long ones. A
    number that would be negative is 0.

    Args:
        trips: of two sizes or more, and of two counts.
        sending: o, seconds for which a rank is busy with a message that it sends.
        reduce_per_byte: see `wagma.simulate.Network`.

    Raises:
        ValueError: there are too few sizes or counts to tell the numbers apart.
    """
    counts = np.array([trip.messages for trip in trips], np.float64)
    sizes = np.array([trip.size for trip in trips], np.float64)
    seconds = np.array([trip.seconds for trip in trips], np.float64)
    rows = np.column_stack([np.full(len(trips), 2.0), counts - 1, counts * sizes])
    if np.linalg.matrix_rank(rows) < 3:
        raise ValueError(
            f"round trips have the sizes {sorted({trip.size for trip in trips})} and the counts "
            f"{sorted({trip.messages for trip in trips})}: two of each are needed"
        )
    once, gap, per_byte = nonnegative(rows / seconds[:, np.newaxis], np.ones(len(rows)))
    overhead = min(sending, once / 2)
    return LogGP(once - 2 * overhead, overhead, gap, per_byte, reduce_per_byte)
