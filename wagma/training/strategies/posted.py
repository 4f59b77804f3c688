"""The base of algorithms that post an average and use it later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from wagma.collectives import Outcome, PartialAllreduce, Request
from wagma.training.agreed import VersionedArray
from wagma.training.arrays import array_of
from wagma.training.stopping import had_samples
from wagma.training.strategies.base import Algorithm

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Meeting


class PostedAveraging(Algorithm):
    """Average values at once or in the background, and keep the average until it is used.

    `_average` computes or posts the average, and `_take` returns it once. A posted call is
    completed before the ranks meet, before this rank leaves, and before a checkpoint. An unused
    average is part of checkpoints, and outlives its collective.

    Values are averaged together with their version: if the average waits for all of its ranks,
    different versions are an error. A posted call counts as a version.
    """

    _array = VersionedArray(torch.empty(0))  # the values, later their average
    _request: Request | None = None  # the posted call
    _latest: Outcome | None = None  # outcome of the latest average
    _due = False  # whether the average is computed and unused

    @property
    def collective(self) -> PartialAllreduce:
        """The collective that averages; its own counter starts at 0 in every process."""
        return self._connected(PartialAllreduce)

    def _keep_in(self, collective: PartialAllreduce, like: torch.Tensor) -> None:
        """Average in the memory of `collective`, created for `like`, a `VersionedArray`'s memory.

        It may have more elements than the memory before; an unused average is 0 in the new ones.
        """
        known = self._array.content
        self._array = VersionedArray(array_of(collective, like).zero_())
        self._array.content[: known.numel()] = known

    def _average(
        self, values: torch.Tensor, weight: float, *, later: bool = False, all_ranks: bool = False
    ) -> None:
        """Average this rank's values; an unused average is lost.

        Args:
            values: 1-d, with the number of elements and the dtype of `_keep_in`.
            weight: weight of this rank's values, finite and >= 0.
            later: post the call and return; `_take` waits for the average.
            all_ranks: average over all ranks and wait for them, whatever the collective's groups.

        Raises:
            MismatchError: the ranks are at different versions.
        """
        self._array.content.copy_(values)
        self._array.write_version(self.version)
        if self.carries_stops:
            self.stops.write(self._array.stop)
            weight = self.stops.weigh(weight)
        if later:
            self._request = self.collective.iallreduce(self._array.memory, weight)
        else:
            call = self.collective.sync if all_ranks else self.collective.allreduce
            self._receive(call(self._array.memory, weight), all_ranks=all_ranks)

    def _finish(self) -> None:
        """Wait for a posted call."""
        if self._request is not None:
            request, self._request = self._request, None
            self._receive(request.wait())

    def _receive(self, outcome: Outcome, *, all_ranks: bool = False) -> None:
        self._latest, self._due = outcome, had_samples(outcome.weight)
        if all_ranks or self.collective.options.quorum == "all":
            self._array.check(self.rank)

    def _take(self) -> torch.Tensor | None:
        """Wait for the average and return it; None if there is none, or all weights were 0."""
        self._finish()
        self.outcome = self._latest
        if self.carries_stops:  # here, because all ranks take an average at the same version
            self.stops.read(self._array.stop)
        due, self._due = self._due, False
        return self._array.content if due else None

    def counter(self) -> int:
        """Return the number of versions of the collective, a posted one included."""
        return super().counter() + (self._request is not None)

    def meet(self) -> Meeting:
        """Wait for a posted call, which frees the collective, then meet the other ranks."""
        self._finish()
        return super().meet()

    def _leave(self) -> None:
        try:
            self._finish()
        finally:
            super()._leave()

    def release(self) -> None:
        """Release the collective's memory; keep a copy of an unused average."""
        self._request = None
        memory = self._array.memory
        self._array = VersionedArray(memory.clone() if self._due else memory.new_empty(0))

    def state(self) -> dict[str, Any]:
        """Wait for a posted call and return the unused average, without its outcome."""
        self._finish()
        return super().state() | {"average": self._array.content.clone() if self._due else None}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        super().load_state(state)
        self._due = state["average"] is not None
        if self._due:
            self._array.content.copy_(state["average"])
