"""The ranks that train together, and their collective calls beside the training's versions."""

import inspect
from typing import TypedDict, Unpack

import numpy as np
import torch

from wagma.collectives import PartialAllreduce
from wagma.collectives.options import Transport
from wagma.collectives.rendezvous.meeting import Comm, Meeting, rank_and_size
from wagma.collectives.rendezvous.patience import Patience


class Waits(TypedDict, total=False):
    """Arguments of every algorithm that control how ranks wait for each other.

    Attributes:
        timeout: seconds until a wait ends in StallError; None, the default: never.
        stall_warning: seconds between warnings about a stuck wait, 0.1 at least; None: none. The
            default is 60.
        transport: "shm", "mpi" or "auto", the default; see `wagma.collectives.Options`.
    """

    timeout: float | None
    stall_warning: float | None
    transport: Transport


class NamedWaits(Waits):
    """`Waits`, and the collective's name in messages."""

    name: str


class Ranks:
    """The ranks of a communicator, and how long they wait for each other.

    Args:
        comm: communicator of the ranks; "auto": the ranks that the launcher started; see
            `PartialAllreduce`.
        waits: timeout, stall_warning and transport, see `Waits`.

    Attributes:
        comm: as given.
        rank: this process's rank.
        size: the number of ranks.
        waits: arguments for collectives: `waits` with defaults, and the name of the class.

    Raises:
        TypeError: an argument is unknown.
        what `PartialAllreduce` raises for a wrong `comm`.
    """

    def __init__(self, comm: Comm = "auto", **waits: Unpack[Waits]) -> None:
        if unknown := sorted(waits.keys() - Waits.__annotations__.keys()):
            named = inspect.signature(type(self)).parameters.values()
            own = [one.name for one in named if one.kind is not inspect.Parameter.VAR_KEYWORD]
            raise TypeError(
                f"{type(self).__name__}() got an unexpected argument {unknown[0]!r}: it takes "
                f"{', '.join((*own, *Waits.__annotations__))}"
            )
        self.comm = comm
        self.rank, self.size = rank_and_size(comm)
        self.waits: NamedWaits = {
            "timeout": waits.get("timeout"),
            "stall_warning": waits.get("stall_warning", 60.0),
            "transport": waits.get("transport", "auto"),
            "name": type(self).__name__,
        }

    def meet(self) -> Meeting:
        """Return a context manager in which all ranks exchange and compare values; collective."""
        return Meeting(self.comm, self._patience)

    @property
    def _patience(self) -> Patience:
        return Patience.of({**self.waits})

    def broadcast(self, array: torch.Tensor) -> None:
        """Copy `array` from rank 0 to all ranks; collective.

        Args:
            array: contiguous, of one shape and dtype on all ranks, on any device.
        """
        if self.size == 1:
            return
        here = array.cpu()
        content = here.view(-1).view(torch.uint8).numpy()
        words = np.zeros(-(-content.size // 4), np.int32)  # rank 0 alone contributes to the sum
        with self._once(words, average=False, name="parameters of rank 0") as collective:
            memory = collective.empty()
            shared = memory.view(np.uint8)[: content.size]
            if self.rank == 0:
                shared[:] = content
            collective.allreduce(memory, weight=float(self.rank == 0))
            content[:] = shared
        if here is not array:
            array.copy_(here)

    def average(self, array: torch.Tensor, weight: float = 1.0) -> None:
        """Replace `array` by the mean over all ranks; collective, beside the training's versions.

        Args:
            array: contiguous, of one shape and floating dtype on all ranks, on any device.
            weight: of this rank's array, >= 0.
        """
        here = array.cpu()
        with self._once(here, average=True, name="averages") as collective:
            collective.allreduce(here, weight)
        if here is not array:
            array.copy_(here)

    def _once(self, like: object, *, average: bool, name: str) -> PartialAllreduce:
        """Create a collective of all ranks for one call."""
        waits: NamedWaits = {**self.waits, "name": name}
        return PartialAllreduce(self.comm, like, average=average, **waits)
