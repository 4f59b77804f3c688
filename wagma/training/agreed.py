"""A number that all ranks should have alike, compared along with an average."""

from __future__ import annotations

import torch

__all__ = ["Agreed"]

BITS = 32


class Agreed:
    """Elements of an averaged array that tell whether all ranks had one number.

    There are two for each of its bits, of which one is 1: where both have a mean that is not 0 the
    ranks have different numbers, whatever the dtype rounds to.

    Args:
        memory: 1-d tensor of `SIZE` elements, a part of the array.
    """

    SIZE = 2 * BITS

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self._places = torch.arange(BITS)
        self._told: int | None = None
        self._elements = torch.zeros(self.SIZE)

    def tell(self, number: int) -> None:
        """Make the elements this rank's `number`, of which the lowest 32 bits count."""
        if number != self._told:
            ones = (number >> self._places) & 1
            self._elements = torch.cat([ones, 1 - ones])
            self._told = number
        self._memory.copy_(self._elements)

    def differs(self) -> bool:
        """Return whether the ranks whose mean the elements are have told different numbers."""
        return bool((self._memory.view(2, -1) > 0).all(dim=0).any())

    def is_own(self) -> bool:
        """Return whether they told the number of this rank, which may count with weight 0."""
        return torch.equal(self._memory > 0, self._elements > 0)
