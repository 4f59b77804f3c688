"""Agreement of ranks on the end of a training, without extra messages or waits.

A rank that requests the end adds an infinity to an array that all ranks average anyway. It survives
every weight and dtype: a mean that is not 0 passes the request to all ranks at the same version.
"""

import math
from collections.abc import Callable
from typing import Unpack

import numpy as np
import torch

from wagma.collectives import Outcome, Request, SyncAllreduce
from wagma.collectives.rendezvous.meeting import Comm
from wagma.training.ranks import NamedWaits

# Weight of a rank without samples that contributes only its stop request: float32 arrays accept it,
# and it is far too small to change another rank's share.
LEAST = 2.0**-96
_NO_SAMPLES = 2.0**-80  # more than the sum of such weights over all ranks


def had_samples(weight: float) -> bool:
    """Return whether a sum of weights includes a rank with samples."""
    return weight > _NO_SAMPLES


class Stops:
    """A rank's request to end the training, and the agreement of all ranks.

    Attributes:
        wanted: whether this rank wants the training to end; any thread or signal handler sets it.
        agreed: whether all ranks know of a request.
        requested: whether this rank's latest contribution carried its request.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.agreed = False
        self.requested = False

    def write(self, element: torch.Tensor) -> None:
        """Write this rank's request, if any, into `element`, which will be averaged."""
        self.requested = self.wanted and not self.agreed
        element.fill_(math.inf if self.requested else 0.0)

    def weigh(self, weight: float) -> float:
        """Return the weight of a contribution, more than 0 if it carries a request."""
        return LEAST if self.requested and weight == 0 else weight

    def read(self, element: torch.Tensor) -> None:
        """Read the averaged requests of all ranks from `element`, and clear it."""
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
        """Average `array` over all ranks by `call`, with the requests in `element`, a part of it.

        If all weights are 0 the array keeps its content.
        """
        self.write(element)
        before = array.clone() if weight == 0 else None
        outcome = call(array, self.weigh(weight))
        self.read(element)
        if before is not None and not had_samples(outcome.weight):
            array.copy_(before)
            element.zero_()
        return outcome


class StopWatch(SyncAllreduce):
    """Sum the requests of ranks that never average all together, beside their averages.

    A rank posts a sum at every multiple of `every` versions, and completes it at the next multiple.
    If ranks are less than `every` versions apart all have posted by then, and no rank waits. So all
    ranks decide at the same version; if versions advance by more than one, a rank decides at its
    first version from there on.

    Args:
        comm: communicator of the ranks.
        stops: the requests; gets the agreement.
        every: versions between two sums, the same on all ranks.
        version: the next version, the same on all ranks.
        waits: timeout, stall_warning, transport and name, see `wagma.training.ranks.Waits`.
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
        """Continue at `version`, at which all ranks are; collective."""
        self._complete()
        self._post()
        self._next = version - version % self._every + self._every

    def see(self, version: int) -> None:
        """Note that this rank has reached `version`."""
        while version >= self._next:
            self._complete()
            self._post()
            self._next += self._every

    @property
    def version(self) -> int:
        """Number of sums, a posted one included."""
        return super().version + (self._request is not None)

    def close(self, sync: bool = False) -> None:
        """Complete the posted sum, for which others get as far or leave, and close."""
        try:
            self._complete()
        finally:
            super().close(sync)

    def fail(self) -> None:
        """Leave as a failed rank, without completing the posted sum."""
        self._request = None
        super().fail()

    def _post(self) -> None:
        self._number[0] = self._stops.wanted and not self._stops.agreed
        self._request = self.iallreduce(self._number)

    def _complete(self) -> None:
        if self._request is not None:
            request, self._request = self._request, None
            request.wait()
            if self._number[0] != 0:
                self._stops.agreed = True
