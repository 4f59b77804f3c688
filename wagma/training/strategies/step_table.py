"""A table of all ranks' step measurements, shared by a sum allreduce."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from wagma.collectives import SyncAllreduce

__all__ = ["REMEMBERED", "StepTable"]

REMEMBERED = 1000  # the newest steps


class StepTable:
    """One row of numbers per rank, and marks of the versions that ranks know. Calls are collective.

    Args:
        ranks: collective over all ranks for `size_for(size, columns)` float64, with average=False.
        columns: numbers per row.
    """

    @staticmethod
    def size_for(size: int, columns: int) -> int:
        """Return the elements of the collective's array for `size` ranks."""
        return size * columns + REMEMBERED

    def __init__(self, ranks: SyncAllreduce, columns: int) -> None:
        self._ranks = ranks
        self._columns = columns

    def common(self, versions: Iterable[int]) -> list[int]:
        """Return the versions among `versions` that all ranks passed.

        Args:
            versions: none is `REMEMBERED` or more older than the newest of any rank.
        """
        table, own = self._new(), sorted(versions)
        marks = table[-REMEMBERED:]
        marks[[version % REMEMBERED for version in own]] = 1
        self._ranks.allreduce(table)
        return [version for version in own if marks[version % REMEMBERED] == self._ranks.size]

    def share(self, row: Sequence[float]) -> list[list[float]]:
        """Return the rows of all ranks, by rank."""
        table = self._new()
        rows = table[:-REMEMBERED].reshape(self._ranks.size, self._columns)
        rows[self._ranks.rank] = row
        self._ranks.allreduce(table)
        return [list(row) for row in rows.tolist()]

    def _new(self) -> npt.NDArray[np.float64]:
        return np.zeros(self.size_for(self._ranks.size, self._columns))
