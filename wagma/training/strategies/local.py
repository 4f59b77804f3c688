"""Local SGD: local steps, and models averaged over all ranks every so many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wagma.collectives import Options, SyncAllreduce
from wagma.collectives.options import Transport
from wagma.training.flat import FlatParameters
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.collective import Collective

if TYPE_CHECKING:
    from wagma.collectives.meeting import Comm

__all__ = ["LocalSGD"]


class LocalSGD(Algorithm):
    """Makes `sync_period` steps of its own, then averages the models of all ranks, waiting for all.

    Of Stich, "Local SGD Converges Fast and Communicates Little" (ICLR 2019); with
    ``sync_period=1`` it is the synchronous model averaging that the paper on WAGMA-SGD calls local
    SGD in its figures.

    A version is a step, and versions t with (t + 1) % sync_period == 0 average. The others call no
    collective: `outcome` is None after them. Only parameters are averaged, as with `WAGMA`.

    Args:
        comm: the ranks that train together; "auto": those that the launcher
            started, over MPI or as torchrun does; see `PartialAllreduce`.
        sync_period: versions from one average to the next, tau; None: only `synchronize` averages.
        timeout: seconds until a wait ends in StallError; None: never.
        stall_warning: seconds between warnings about a stuck wait, 0.1 at least; None: none.
        transport: "shm", "mpi" or "auto", see `wagma.collectives.Options`.

    Raises:
        what `Algorithm` does. A wrong `sync_period` is raised, on every rank, when the optimizer is
        made.
    """

    def __init__(
        self,
        comm: Comm = "auto",
        sync_period: int | None = 10,
        *,
        timeout: float | None = None,
        stall_warning: float | None = 60.0,
        transport: Transport = "auto",
    ) -> None:
        super().__init__(comm, timeout=timeout, stall_warning=stall_warning, transport=transport)
        self.sync_period = sync_period
        self._local = 0  # steps that called no collective

    def _arguments(self) -> dict[str, object]:
        Options(sync_period=self.sync_period).engine(1, 0, 0)  # raises what is wrong with it
        return {"sync_period": self.sync_period}

    def _connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        return (SyncAllreduce(self.comm, parameters.flat, **self._waits),)

    def _counter(self) -> int:
        return self.collective.version + self._local

    def after_step(self) -> None:
        """Averages the new model where a period ends."""
        if self.sync_period is not None and (self.version + 1) % self.sync_period == 0:
            self.synchronize()
        else:
            self.outcome = None
            self._local += 1

    def synchronize(self) -> None:
        """Averages the models of all ranks."""
        self.outcome = self._connected(SyncAllreduce).sync(self.parameters.flat)
        self.parameters.written()

    def __repr__(self) -> str:
        return f"LocalSGD({self.size} ranks, sync_period={self.sync_period})"
