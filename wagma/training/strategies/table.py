"""A table of numbers of all ranks, shared beside a training."""

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from wagma.collectives import SyncAllreduce
from wagma.collectives.rendezvous.meeting import Comm
from wagma.theory.checks import Floats
from wagma.training.ranks import NamedWaits


class Table(SyncAllreduce):
    """Show the numbers of each rank to all ranks: a sum to which each contributes its own row.

    A call takes about as long as a version of a small training. A `Meeting`, whose ranks poll,
    takes milliseconds, and tens of these where cores are busy.

    Args:
        comm: communicator of the ranks.
        rank: this process's rank.
        size: the number of ranks.
        width: most numbers of a rank.
        waits: timeout, stall_warning, transport and name, see `wagma.training.ranks.Waits`.
    """

    def __init__(
        self, comm: Comm, rank: int, size: int, width: int, **waits: Unpack[NamedWaits]
    ) -> None:
        self._row = rank
        self._numbers = np.zeros((size, width))
        super().__init__(comm, self._numbers, average=False, **waits)

    def share(self, own: Sequence[float]) -> Floats:
        """Return the numbers of all ranks, float64 (P, width), 0 where a rank gave fewer.

        Collective. Sums with 0 are exact, so that all ranks get the same bits. The next call
        overwrites the array.
        """
        self._numbers[:] = 0.0
        self._numbers[self._row, : len(own)] = own
        self.allreduce(self._numbers)
        return self._numbers
