"""A table of numbers of all ranks, shared beside a training."""

from collections.abc import Iterable, Sequence
from typing import Unpack

import numpy as np

from wagma.collectives import SyncAllreduce
from wagma.collectives.rendezvous.meeting import Comm
from wagma.theory.checks import Floats
from wagma.training.ranks import NamedWaits


class Table(SyncAllreduce):
    """Give the numbers of each rank to all ranks: a sum to which each contributes its own row.

    A call takes about as long as a version of a small training. A `Meeting`, whose ranks poll,
    takes milliseconds, and tens of these where cores are busy.

    Args:
        comm: communicator of the ranks.
        rank: this process's rank.
        size: the number of ranks.
        width: most numbers of a rank.
        marked: number of consecutive versions that `common` can tell apart.
        waits: timeout, stall_warning, transport and name, see `wagma.training.ranks.Waits`.
    """

    def __init__(
        self,
        comm: Comm,
        rank: int,
        size: int,
        width: int,
        marked: int = 0,
        **waits: Unpack[NamedWaits],
    ) -> None:
        self._row = rank
        self._numbers = np.zeros(size * width + marked)
        self._rows = self._numbers[: size * width].reshape(size, width)
        self._marks = self._numbers[size * width :]
        super().__init__(comm, self._numbers, average=False, **waits)

    def share(self, own: Sequence[float]) -> Floats:
        """Return the numbers of all ranks, float64 (P, width), 0 where a rank gave fewer.

        Collective. Sums with 0 are exact, so that all ranks get the same bits. The next call
        overwrites the array.
        """
        self._numbers[:] = 0.0
        self._rows[self._row, : len(own)] = own
        self.allreduce(self._numbers)
        return self._rows

    def common(self, versions: Iterable[int]) -> list[int]:
        """Return the versions among `versions` that all ranks passed; collective.

        Args:
            versions: none is `marked` or more older than the newest of any rank.
        """
        own, marked = sorted(versions), len(self._marks)
        self._numbers[:] = 0.0
        self._marks[[version % marked for version in own]] = 1
        self.allreduce(self._numbers)
        return [version for version in own if self._marks[version % marked] == self.size]
