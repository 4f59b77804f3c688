"""Arrays whose sums tell which version of which rank they hold.

Rank r's array of version v repeats a row of ROW integers of 1 to some maximum. The row is a part of
a fixed table of random numbers, and where it begins follows from r and v. The maximum is so small
that sums of as many arrays as are ever added up are exact, in any order of the additions: up to
2**24 of float32, 2**53 of float64, 2**11 of float16 and 2**8 of bfloat16. Sums of integers wrap.

Two sets of (rank, version) have different sums but by chance, and by design where a rank's versions
are BEGINNINGS apart. The chance is small where there are many elements, or large numbers: not for
single elements of 16 bits. ROW is prime: parts that were exchanged or displaced by a power of two
are noticed.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..collectives.arrays import DTYPES

Vector = npt.NDArray[Any]

ROW = 4093  # elements, a prime
BEGINNINGS = 65521  # the same
BLOCK = 64  # rows that are compared at a time: about 1 MiB, which stays in the caches
_STRIDE = 12289  # from one version's beginning to the next one's

# Integers from 0 to here are held exactly.
_EXACT = {"float32": 1 << 24, "float64": 1 << 53, "float16": 1 << 11, "bfloat16": 1 << 8}
# Sums of these integers wrap.
_LARGEST = {"int32": (1 << 31) - 1, "int64": (1 << 63) - 1}


def exact_terms(datatype: str) -> int | None:
    """Return the largest number of arrays whose sums can be checked; None: any number."""
    return _EXACT.get(datatype)


class Contributions:
    """Writes and checks arrays of `count` elements; not thread-safe.

    Args:
        count: elements, 0 or more.
        datatype: "float32", "float64", "float16", "bfloat16" (held as uint16), "int32" or "int64".
        terms: number of arrays that are added up, at most.

    Attributes:
        datatype: of the elements.
        storage: numpy's dtype of the arrays.
        table: elements of which `row` gives a contribution.

    Raises:
        ValueError: sums of so many arrays are not exact.
    """

    def __init__(self, count: int, datatype: str = "float32", terms: int = 16) -> None:
        limit = exact_terms(datatype)
        if limit is not None and terms > limit:
            raise ValueError(
                f"{datatype} holds sums of {terms} arrays only rounded, {limit} at most are exact: "
                "they cannot be checked; use another datatype"
            )
        largest = _LARGEST[datatype] if limit is None else limit // max(terms, 1)
        self.count = count
        self.datatype = datatype
        self.storage = DTYPES[datatype].storage
        self._row = min(count, ROW)
        random = np.random.default_rng(1)
        # One row is enough where there are few elements.
        numbers = random.integers(1, largest, BEGINNINGS + self._row, np.int64, endpoint=True)
        self._numbers = numbers
        self.table = self._encode(numbers)
        self._unequal = np.empty((BLOCK, self._row), np.bool_)

    def write(self, x: Vector, rank: int, version: int) -> None:
        """Write a contribution into `x`; version -1 is the first, given at creation."""
        row = self.table[self.row(rank, version)]
        for part in self._parts(x):
            part[...] = row[: part.shape[1]]

    def row(self, rank: int, version: int) -> slice:
        """Return which elements of `table` a contribution repeats."""
        begin = _beginning(rank, version)
        return slice(begin, begin + self._row)

    def wrong(self, x: Vector, holds: Iterable[tuple[int, int]]) -> int:
        """Return how many elements of `x` differ from the sum of some (rank, version)."""
        total = np.zeros(self._row, np.int64)
        for rank, version in holds:
            total += self._numbers[self.row(rank, version)]
        expected = self._encode(total)
        count = 0
        for part in self._parts(x):
            rows, columns = part.shape
            unequal = self._unequal[:rows, :columns]
            count += int(np.count_nonzero(np.not_equal(part, expected[:columns], out=unequal)))
        return count

    def _encode(self, integers: npt.NDArray[np.int64]) -> Vector:
        if self.datatype != "bfloat16":
            return integers.astype(self.storage)
        return (integers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)

    def _parts(self, x: Vector) -> Iterator[Vector]:
        """Yield blocks of rows of `x`, and the rest as a shorter row."""
        if self._row == 0:
            return
        whole = x.size // self._row
        rows = x[: whole * self._row].reshape(whole, self._row)
        for start in range(0, whole, BLOCK):
            yield rows[start : start + BLOCK]
        if x.size % self._row:
            yield x[np.newaxis, whole * self._row :]


def _beginning(rank: int, version: int) -> int:
    # Ranks are far apart: as many versions as fit between two of 64 are told from one another.
    return (_STRIDE * (version + 1 + rank * (BEGINNINGS // 64))) % BEGINNINGS
