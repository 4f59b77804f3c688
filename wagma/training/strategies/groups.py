"""The base of algorithms that average models in groups."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

import torch

from wagma.collectives import Outcome, PartialAllreduce
from wagma.collectives.options import Grouping
from wagma.training.arrays import array_of
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.cycles import pass_empty

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm


class GroupAveraging(Algorithm):
    """Average the model after every local step within the rank's group of that version.

    During the training the model is stored in the collective's array, so that publishing and
    averaging need no copy (see `wagma.collectives.Handle.empty`).

    Args:
        comm, waits: see `Algorithm`.
        sync_period: versions from one average of all ranks to the next; None: never.
        grouping: how groups follow from the version, see `wagma.collectives.Options`.

    Attributes:
        group_size: largest number of ranks in a group.
        sync_period: as given.

    Raises:
        what `Algorithm` does.
    """

    group_size: int
    _array = torch.empty(0)  # the model, followed by one element for stop requests

    def __init__(
        self, comm: Comm, *, sync_period: int | None, grouping: Grouping, **waits: Unpack[Waits]
    ) -> None:
        super().__init__(comm, **waits)
        self.sync_period = sync_period
        self._grouping: Grouping = grouping

    @property
    def collective(self) -> PartialAllreduce:
        """The collective that averages; its own counter starts at 0 in every process."""
        return self._connected(PartialAllreduce)

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create the collective."""
        size = parameters.layout.numel
        like = torch.cat([parameters.flat, parameters.flat.new_zeros(1)])
        collective = self._make(like)
        try:
            self._array = array_of(collective, like)
            self._array[size:] = 0
            parameters.move(self._array[:size])
        except BaseException as error:  # the other ranks get PeerError
            collective.__exit__(type(error), error, None)
            raise
        return (collective,)

    @property
    def carries_stops(self) -> bool:
        """Whether all ranks average together: every `sync_period` versions."""
        return self.sync_period is not None

    @abstractmethod
    def _make(self, like: torch.Tensor) -> PartialAllreduce:
        """Create the collective for arrays like `like`."""

    def release(self) -> None:
        """Release the collective's memory."""
        self.parameters.move(torch.empty_like(self.parameters.flat))
        self._array = self._array.new_empty(0)

    def after_step(self) -> None:
        """Average the new model with the group's models."""
        average = self.collective.allreduce
        if self.carries_stops and (self.collective.version + 1) % int(self.sync_period or 0) == 0:
            self.outcome = self._average_all(average, self.weight)
        else:
            self.outcome = average(self._array, self.weight)
        self.parameters.written()

    def _average_all(
        self, call: Callable[[torch.Tensor, float], Outcome], weight: float
    ) -> Outcome:
        """Average the models and the stop requests of all ranks."""
        return self.stops.average(call, self._array, self._array[-1:], weight)

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Average the models of all ranks."""
        self.outcome = self._average_all(self.collective.sync, 1.0)
        self.parameters.written()

    def restart(self, version: int) -> None:
        """Pass versions until groups and synchronisations are those of `version`."""
        pass_empty(self.collective, self._array, version)
