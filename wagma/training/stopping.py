"""How ranks agree on the end of a training, without a message or a wait of its own.

A rank that wants to stop adds an infinity to what all ranks average anyway, which survives every
weight and dtype: a mean that is not 0 says to all of them, at the same version, that one wants to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import numpy as np
import torch

from wagma.collectives import Outcome, Request, SyncAllreduce
from wagma.collectives.rendezvous.meeting import Comm
from wagma.training.ranks import NamedWaits

__all__ = ["StopWatch", "Stops", "had_samples"]

# The weight with which a rank that would have none contributes nothing but its wish. It is among
# those that float32 arrays take, and far too small to change another rank's share.
LEAST = 2.0**-96
_NOBODY = 2.0**-80  # more than all of these together


def had_samples(weight: float) -> bool:
    """Return whether a sum of weights has that of a rank with samples in it."""
    return weight > _NOBODY


class Stops:
    """What one rank wants, and what all have agreed on.

    Attributes:
        wanted: this rank wants the training to end; any thread or signal handler may set it.
        agreed: all ranks know that one wants it to end.
        told: this rank's latest contribution says so.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.agreed = False
        self.told = False

    def tell(self, element: torch.Tensor) -> None:
        """Make `element`, which will be averaged, say what this rank wants."""
        self.told = self.wanted and not self.agreed
        element.fill_(math.inf if self.told else 0.0)

    def weigh(self, weight: float) -> float:
        """Return the weight of what was told: more than 0 where it has to be heard."""
        return LEAST if self.told and weight == 0 else weight

    def see(self, element: torch.Tensor) -> None:
        """Look at the average of what the ranks have told."""
        if element.item() != 0:  # a NaN, too
            self.agreed = True
            element.zero_()

    def average(
        self,
        call: Callable[[torch.Tensor, float], Outcome],
        array: torch.Tensor,
        element: torch.Tensor,
        weight: float,
    ) -> Outcome:
        """Average `array` over all ranks by `call`, with what they want in `element`, a part of it.

        Where all weights are 0 it stays what it is.
        """
        self.tell(element)
        before = array.clone() if weight == 0 else None
        outcome = call(array, self.weigh(weight))
        self.see(element)
        if before is not None and not had_samples(outcome.weight):
            array.copy_(before)
            element.zero_()
        return outcome


class StopWatch(SyncAllreduce):
    """The agreement of ranks that never average all together: a sum of one number beside it.

    It is posted at every multiple of `every` versions, and taken at the next one, by which every
    rank has posted, if none is `every` versions behind another: nobody waits. So all decide at the
    same version; where versions advance by more than one, each at its first one from there on.

    Args:
        comm: of the ranks.
        stops: to which what is agreed on is told.
        every: versions, the same on all ranks.
        version: which comes next, the same on all ranks.
        waits: how the ranks wait for each other.
    """

    def __init__(
        self, comm: Comm, stops: Stops, every: int, version: int, **waits: Unpack[NamedWaits]
    ) -> None:
        self._stops = stops
        self._every = every
        self._number = np.zeros(1, np.float32)
        self._request: Request | None = None
        super().__init__(comm, self._number, average=False, **waits)
        self.restart(version)

    def restart(self, version: int) -> None:
        """Go on at `version`, at which all ranks are; collective."""
        self._take()
        self._post()
        self._next = version - version % self._every + self._every

    def see(self, version: int) -> None:
        """See that this rank has come to `version`."""
        while version >= self._next:
            self._take()
            self._post()
            self._next += self._every

    @property
    def version(self) -> int:
        """The sums that were posted."""
        return super().version + (self._request is not None)

    def close(self, sync: bool = False) -> None:
        """Leave it, when what was posted is complete: the others have come as far, or left."""
        try:
            self._take()
        finally:
            super().close(sync)

    def fail(self) -> None:
        """Leave it as a rank that has failed."""
        self._request = None
        super().fail()

    def _post(self) -> None:
        self._number[0] = self._stops.wanted and not self._stops.agreed
        self._request = self.iallreduce(self._number)

    def _take(self) -> None:
        if self._request is not None:
            request, self._request = self._request, None
            request.wait()
            if self._number[0] != 0:
                self._stops.agreed = True
