"""What all ranks should have alike, compared along with an average."""

from __future__ import annotations

import torch

from wagma.collectives import MismatchError

__all__ = ["Agreed", "VersionedArray"]

BITS = 32


class Agreed:
    """Elements of an averaged array that tell whether all ranks had one number.

    There are two for each of its bits, of which one is 1: where both have a mean that is not 0 the
    ranks have different numbers, whatever the dtype rounds to.

    Args:
        memory: 1-d tensor of `SIZE` elements, a part of the array.

    Attributes:
        told: this rank's number, once it told one.
    """

    SIZE = 2 * BITS

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self._places = torch.arange(BITS)
        self.told: int | None = None
        self._elements = torch.zeros(self.SIZE)

    def tell(self, number: int) -> None:
        """Make the elements this rank's `number`, of which the lowest 32 bits count."""
        if number != self.told:
            ones = (number >> self._places) & 1
            self._elements = torch.cat([ones, 1 - ones])
            self.told = number
        self._memory.copy_(self._elements)

    def differs(self) -> bool:
        """Return whether the ranks whose mean the elements are have told different numbers."""
        return bool((self._memory.view(2, -1) > 0).all(dim=0).any())

    def is_own(self) -> bool:
        """Return whether they told the number of this rank, which may count with weight 0."""
        return torch.equal(self._memory > 0, self._elements > 0)


class VersionedArray:
    """An array that is averaged together with the version that it is of.

    Local steps call no collective, which would notice that a rank has made more than another.

    Args:
        memory: 1-d tensor, `TOLD` elements longer than the content.

    Attributes:
        memory: as given: what a collective averages.
        content: the array, a view of it.
        stop: one element for what ranks want to stop, see `wagma.training.stopping.Stops`.
    """

    TOLD = Agreed.SIZE + 1

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.content = memory[: -self.TOLD]
        self._version = Agreed(memory[-self.TOLD : -1])
        self.stop = memory[-1:]

    @classmethod
    def like(cls, content: torch.Tensor) -> VersionedArray:
        """Return one of zeros whose content has the elements and the dtype of `content`."""
        return cls(content.new_zeros(content.numel() + cls.TOLD))

    def tell(self, version: int) -> None:
        """Make `version` this rank's, before the array is averaged."""
        self._version.tell(version)

    def check(self, rank: int) -> None:
        """Check that the average is one of arrays of the version that `rank`, this one, told.

        Raises:
            MismatchError: it is not.
        """
        if not self._version.is_own():
            raise MismatchError(
                f"the ranks have averaged models of different versions, rank {rank} that of "
                f"version {self._version.told}: every rank has to make as many steps as the others "
                "before it calls synchronize()"
            )
