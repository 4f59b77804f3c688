"""What algorithms that average models in groups have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Unpack

import torch

from wagma.collectives import PartialAllreduce
from wagma.collectives.options import Grouping
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.cycles import pass_empty

if TYPE_CHECKING:
    from wagma.collectives.meeting import Comm

__all__ = ["GroupAveraging"]


class GroupAveraging(Algorithm):
    """Averages the model after every local step, within the rank's group of that version.

    As long as it trains, the model lies in the collective's array, which takes no copy to publish
    or to average (see `wagma.collectives.Handle.empty`).

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

    def __init__(
        self,
        comm: Comm,
        *,
        sync_period: int | None,
        grouping: Grouping,
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, **waits)
        self.sync_period = sync_period
        self._grouping: Grouping = grouping

    @property
    def collective(self) -> PartialAllreduce:
        """The collective; its own counter starts at 0 in every process."""
        return self._connected(PartialAllreduce)

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Make the collective."""
        collective = self._make(parameters.flat)
        try:
            parameters.move(torch.from_numpy(collective.empty()).view(parameters.layout.dtype))
        except BaseException as error:  # the others, who go on, are told
            collective.__exit__(type(error), error, None)
            raise
        return (collective,)

    @abstractmethod
    def _make(self, like: torch.Tensor) -> PartialAllreduce:
        """The collective, of arrays like `like`."""

    def release(self) -> None:
        """Let go of the collective's memory."""
        self.parameters.move(torch.empty_like(self.parameters.flat))

    def after_step(self) -> None:
        """Averages the new model with the group's."""
        self.outcome = self.collective.allreduce(self.parameters.flat, self.weight)
        self.parameters.written()

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Averages the models of all ranks."""
        self.outcome = self.collective.sync(self.parameters.flat)
        self.parameters.written()

    def restart(self, version: int) -> None:
        """Passes through versions until groups and synchronisations are those of `version`."""
        pass_empty(self.collective, self.parameters.flat, version)
