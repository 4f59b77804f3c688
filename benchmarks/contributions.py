"""Arrays whose sums tell which version of which rank they hold.

Element j of rank r's array of version v is p(j) + d(r, v): p depends on the position, so that parts
in the wrong place are noticed; d has five bits for each of four ranks, so that sums of other ranks
or versions (modulo 30) differ. All sums are integers below 2**24, which float32 holds exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Contributions", "Vector"]

Vector = npt.NDArray[np.float32]

CHUNK = 1 << 18  # elements: 1 MiB, which stays in the caches while it is written or compared
PERIOD, CHUNK_PERIOD = 1021, 101
DIGIT_BITS, DIGIT_PERIOD, DIGITS = 5, 30, 4


def _digit(rank: int, version: int) -> int:
    # Never 0, which would hide a missing rank; 1 to 30, twice that where a late rank adds its own.
    return 1 + (version + 1) % DIGIT_PERIOD << DIGIT_BITS * (rank % DIGITS)


class Contributions:
    """Writes and checks arrays of `count` float32; not thread-safe."""

    def __init__(self, count: int) -> None:
        self._pattern = (np.arange(min(count, CHUNK)) % PERIOD).astype(np.float32)
        self._expected = np.empty_like(self._pattern)
        self._unequal = np.empty(self._pattern.shape, np.bool_)

    def write(self, x: Vector, rank: int, version: int) -> None:
        """`x` becomes the contribution; version -1 is the first, given at creation."""
        digit = _digit(rank, version)
        for k, part in enumerate(_chunks(x)):
            np.add(self._pattern[: part.size], np.float32(digit + k % CHUNK_PERIOD), out=part)

    def wrong(self, x: Vector, holds: Sequence[tuple[int, int]]) -> int:
        """Elements of `x` that differ from the sum of the contributions (rank, version)."""
        terms = len(holds)
        digits = sum(_digit(rank, version) for rank, version in holds)
        count = 0
        for k, part in enumerate(_chunks(x)):
            expected = self._expected[: part.size]
            unequal = self._unequal[: part.size]
            np.multiply(self._pattern[: part.size], np.float32(terms), out=expected)
            expected += np.float32(digits + terms * (k % CHUNK_PERIOD))
            count += int(np.count_nonzero(np.not_equal(part, expected, out=unequal)))
        return count


def _chunks(x: Vector) -> Iterator[Vector]:
    for start in range(0, x.size, CHUNK):
        yield x[start : start + CHUNK]
