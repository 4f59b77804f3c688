"""What algorithms that use an average later than they ask for it have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from wagma.collectives import Outcome, PartialAllreduce, Request
from wagma.training.agreed import VersionedArray
from wagma.training.stopping import had_samples
from wagma.training.strategies.base import Algorithm

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Meeting

__all__ = ["PostedAveraging"]


class PostedAveraging(Algorithm):
    """Averages values at once, or while this rank goes on, and keeps the average until it is used.

    `_average` makes the average or posts it, and `_take` hands it out, once. What was posted is
    complete before the ranks meet, this one leaves, or a checkpoint is made. An average that nobody
    has taken is part of checkpoints, and outlives its collective.

    Each rank tells the version that its values are of: where an average waits for all ranks that
    are in it, different versions are an error. A posted call counts as a version.
    """

    _array = VersionedArray(torch.empty(0))  # the values, and then their average
    _request: Request | None = None  # that averages them
    _given: Outcome | None = None  # what the latest average has come from
    _due = False  # it is there, and nobody has taken it

    @property
    def collective(self) -> PartialAllreduce:
        """The collective; its own counter starts at 0 in every process."""
        return self._connected(PartialAllreduce)

    def _keep_in(self, collective: PartialAllreduce, dtype: torch.dtype) -> None:
        """Average in the memory of `collective`, which was made for a `VersionedArray`.

        It may have more elements than the one before: an average that is there is 0 in them.
        """
        known = self._array.content
        self._array = VersionedArray(torch.from_numpy(collective.empty()).view(dtype).zero_())
        self._array.content[: known.numel()] = known

    def _average(
        self, values: torch.Tensor, weight: float, *, later: bool = False, everybody: bool = False
    ) -> None:
        """Average this rank's values, which count `weight`; an average that is there is lost.

        Args:
            values: 1-d, of the elements and the dtype of `_keep_in`.
            weight: finite and >= 0.
            later: post them and return; `_take` waits for the average.
            everybody: average over all ranks, waiting for them, whatever the collective does.

        Raises:
            MismatchError: the ranks are at different versions.
        """
        self._array.content.copy_(values)
        self._array.tell(self.version)
        if self.carries_stops:
            self.stops.tell(self._array.stop)
            weight = self.stops.weigh(weight)
        if later:
            self._request = self.collective.iallreduce(self._array.memory, weight)
        else:
            call = self.collective.sync if everybody else self.collective.allreduce
            self._receive(call(self._array.memory, weight), everybody=everybody)

    def _finish(self) -> None:
        """Wait for what was posted."""
        if self._request is not None:
            request, self._request = self._request, None
            self._receive(request.wait())

    def _receive(self, outcome: Outcome, *, everybody: bool = False) -> None:
        self._given, self._due = outcome, had_samples(outcome.weight)
        if everybody or self.collective.options.quorum == "all":
            self._array.check(self.rank)

    def _take(self) -> torch.Tensor | None:
        """Wait for the average and return it; None: there is none, or all its weights were 0."""
        self._finish()
        self.outcome = self._given
        if self.carries_stops:  # not earlier: this, all ranks do at the same version
            self.stops.see(self._array.stop)
        due, self._due = self._due, False
        return self._array.content if due else None

    def counter(self) -> int:
        """Return the versions of the collective, a posted one with them."""
        return super().counter() + (self._request is not None)

    def meet(self) -> Meeting:
        """Return the ranks, when what was posted is complete: the collective is free then."""
        self._finish()
        return super().meet()

    def _leave(self) -> None:
        try:
            self._finish()
        finally:
            super()._leave()

    def release(self) -> None:
        """Let go of the collective's memory, with a copy of an average that is not used yet."""
        self._request = None
        memory = self._array.memory
        self._array = VersionedArray(memory.clone() if self._due else memory.new_empty(0))

    def state(self) -> dict[str, Any]:
        """Return the average that is not used yet, and wait for it; its outcome cannot be saved."""
        self._finish()
        return super().state() | {"average": self._array.content.clone() if self._due else None}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        super().load_state(state)
        self._due = state["average"] is not None
        if self._due:
            self._array.content.copy_(state["average"])
