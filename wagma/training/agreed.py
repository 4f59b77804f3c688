"""Numbers that should be equal on all ranks, compared along with an average."""

from __future__ import annotations

import torch

from wagma.collectives import MismatchError

BITS = 32


class Agreed:
    """Elements of an averaged array that show whether all ranks had the same number.

    Each bit of the number has two elements, one of which is 1. If the means of both are not 0 the
    ranks had different numbers, whatever the rounding of the dtype.

    Args:
        memory: 1-d tensor of `SIZE` elements, a part of the array.

    Attributes:
        number: this rank's latest number; None before the first `write`.
    """

    SIZE = 2 * BITS

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self._places = torch.arange(BITS, device=memory.device)
        self.number: int | None = None
        self._elements = torch.zeros(self.SIZE, device=memory.device)

    def write(self, number: int) -> None:
        """Write the lowest 32 bits of this rank's `number` into the elements."""
        if number != self.number:
            ones = (number >> self._places) & 1
            self._elements = torch.cat([ones, 1 - ones])
            self.number = number
        self._memory.copy_(self._elements)

    @staticmethod
    def differs(elements: torch.Tensor) -> bool:
        """Return whether the ranks that averaged these elements had different numbers."""
        return bool((elements.view(2, -1) > 0).all(dim=0).any())

    def is_own(self) -> bool:
        """Return whether all averaged ranks had this rank's number, whatever its weight."""
        return torch.equal(self._memory > 0, self._elements > 0)


class VersionedArray:
    """An array that is averaged together with its version.

    Local steps call no collective that would notice a rank with more steps than another.

    Args:
        memory: 1-d tensor, `EXTRA` elements longer than the content.

    Attributes:
        memory: as given; a collective averages it.
        content: the array, a view of `memory`.
        stop: one element for stop requests, see `wagma.training.stopping.Stops`.
    """

    EXTRA = Agreed.SIZE + 1

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.content = memory[: -self.EXTRA]
        self._version = Agreed(memory[-self.EXTRA : -1])
        self.stop = memory[-1:]

    @classmethod
    def like(cls, content: torch.Tensor) -> VersionedArray:
        """Return an array of zeros whose content has the size and dtype of `content`."""
        return cls(content.new_zeros(content.numel() + cls.EXTRA))

    def write_version(self, version: int) -> None:
        """Write this rank's version, before the array is averaged."""
        self._version.write(version)

    def check(self, rank: int) -> None:
        """Check that all averaged arrays had the version of this rank, `rank`.

        Raises:
            MismatchError: their versions differ.
        """
        if not self._version.is_own():
            raise MismatchError(
                f"the ranks have averaged models of different versions, rank {rank} that of "
                f"version {self._version.number}: every rank has to make as many steps as the "
                "others before it calls synchronize()"
            )
