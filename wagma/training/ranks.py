"""The ranks that train together, and what they do beside the training's versions."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import torch

from wagma.collectives import PartialAllreduce
from wagma.collectives.meeting import Comm, Meeting, rank_and_size
from wagma.collectives.options import Transport
from wagma.collectives.patience import Patience

__all__ = ["Ranks"]


class Waits(TypedDict):
    """Arguments that every collective of an algorithm gets; see `wagma.collectives.Options`."""

    timeout: float | None
    stall_warning: float | None
    transport: Transport
    name: str


class Ranks:
    """The ranks of a communicator, and how long they wait for each other.

    Args:
        comm, timeout, stall_warning, transport: see `wagma.training.strategies.Algorithm`.

    Attributes:
        rank: this one of them.
        size: how many they are.

    Raises:
        what `PartialAllreduce` raises for a wrong `comm`.
    """

    def __init__(
        self,
        comm: Comm,
        *,
        timeout: float | None,
        stall_warning: float | None,
        transport: Transport,
    ) -> None:
        self.comm = comm
        self.rank, self.size = rank_and_size(comm)
        self._timeout = timeout
        self._stall_warning = stall_warning
        self._transport = transport

    def meet(self) -> Meeting:
        """Return the ranks, to compare something; a context manager. Collective."""
        return Meeting(self.comm, self._patience)

    @property
    def _patience(self) -> Patience:
        waits = {"timeout": self._timeout, "stall_warning": self._stall_warning}
        return Patience.of({**waits, "name": type(self).__name__})

    def broadcast(self, array: torch.Tensor) -> None:
        """Make `array` rank 0's on every rank, bit for bit; collective.

        Args:
            array: contiguous, of one shape and dtype on all ranks.
        """
        if self.size == 1:
            return
        content = array.view(-1).view(torch.uint8).numpy()
        words = np.zeros(-(-content.size // 4), np.int32)  # a sum that has one summand
        with self._once(words, average=False, name="parameters of rank 0") as collective:
            memory = collective.empty()
            shared = memory.view(np.uint8)[: content.size]
            if self.rank == 0:
                shared[:] = content
            collective.allreduce(memory, weight=float(self.rank == 0))
            content[:] = shared

    def average(self, array: torch.Tensor) -> None:
        """Make `array` the mean of all ranks'; collective, beside the training's versions.

        Args:
            array: contiguous, of one shape and floating dtype on all ranks.
        """
        with self._once(array, average=True, name="averages") as collective:
            collective.allreduce(array)

    def _once(self, like: object, *, average: bool, name: str) -> PartialAllreduce:
        """Return a collective of all ranks for one call."""
        return PartialAllreduce(
            self.comm,
            like,
            average=average,
            timeout=self._timeout,
            stall_warning=self._stall_warning,
            transport=self._transport,
            name=name,
        )

    @property
    def _waits(self) -> Waits:
        """What all collectives have in common."""
        return {
            "timeout": self._timeout,
            "stall_warning": self._stall_warning,
            "transport": self._transport,
            "name": type(self).__name__,
        }
