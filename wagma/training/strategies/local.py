"""Local SGD: local steps, and models averaged over all ranks every so many of them."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, Unpack

import torch

from wagma.collectives import MismatchError, Options, SyncAllreduce
from wagma.training.agreed import Agreed
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.collective import Collective
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.meeting import Comm

__all__ = ["LocalSGD"]


class LocalSGD(Algorithm):
    """Makes `sync_period` steps of its own, then averages the models of all ranks, waiting for all.

    Of Stich, "Local SGD Converges Fast and Communicates Little" (ICLR 2019); with
    ``sync_period=1`` it is the synchronous model averaging that the paper on WAGMA-SGD calls local
    SGD in its figures.

    A version is a step, and versions t with (t + 1) % sync_period == 0 average. The others call no
    collective: `outcome` is None after them. So ranks tell their version along with the model, and
    an average of models of different versions is an error. Only parameters are averaged, as with
    `WAGMA`. A model counts as much as the steps of its period together: its weight is the mean of
    theirs, as all ranks make equally many.

    Args:
        comm: the ranks that train together; "auto": those that the launcher
            started, over MPI or as torchrun does; see `PartialAllreduce`.
        sync_period: versions from one average to the next, tau; None: only `synchronize` averages.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does. A wrong `sync_period` is raised, on every rank, when the optimizer is
        made.
    """

    def __init__(
        self,
        comm: Comm = "auto",
        sync_period: int | None = 10,
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, **waits)
        self.sync_period = sync_period
        self._weights: list[float] = []  # of the steps of this period
        self._memory = torch.empty(0)  # that is averaged: the model, and its version
        self._at = Agreed(self._memory)
        self._told = 0  # version that was told last

    def arguments(self) -> dict[str, object]:
        """Return the own arguments, checked."""
        Options(sync_period=self.sync_period).engine(1, 0, 0)  # raises what is wrong with it
        return {"sync_period": self.sync_period}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Make the collective."""
        elements = parameters.layout.numel
        memory = torch.zeros(elements + Agreed.SIZE, dtype=parameters.layout.dtype)
        collective = SyncAllreduce(self.comm, memory, **self.waits)
        parameters.move(memory[:elements])
        self._memory, self._at = memory, Agreed(memory[elements:])
        return (collective,)

    def after_step(self) -> None:
        """Averages the new model where a period ends."""
        self._weights.append(self.weight)
        if self.sync_period is not None and (self.version + 1) % self.sync_period == 0:
            self.synchronize(final=False)
        else:
            self.outcome = None
            self.count_versions(1)

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Averages the models of all ranks, by the weights of their steps since the last time.

        Raises:
            MismatchError: they are of different versions; on every rank, but those whose weight is
                0 are not compared with on the others.
        """
        weight = fmean(self._weights) if self._weights else 1.0
        self._tell_version()
        self.outcome = self._connected(SyncAllreduce).sync(self._memory, weight)
        self._weights.clear()
        self.parameters.written()
        self._check_versions()

    def _tell_version(self) -> None:
        """Put this rank's version beside what is averaged next."""
        self._told = self.version
        self._at.tell(self._told)

    def _check_versions(self) -> None:
        """Check that what was averaged was of one version.

        Raises:
            MismatchError: it was not.
        """
        if not self._at.is_own():
            raise MismatchError(
                f"the ranks have averaged models of different versions, rank {self.rank} that of "
                f"version {self._told}: every rank has to make as many steps as the others before "
                "it calls synchronize()"
            )

    def state(self) -> dict[str, Any]:
        """Return the weights of the period's steps."""
        return {"weights": list(self._weights)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up the weights that were saved."""
        self._weights = list(state.get("weights", ()))

    def __repr__(self) -> str:
        return f"LocalSGD({plural(self.size, 'rank')}, sync_period={self.sync_period})"
