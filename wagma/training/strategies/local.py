"""Local SGD: local steps, and models averaged over all ranks every so many of them."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, Unpack

from wagma.collectives import Options, SyncAllreduce
from wagma.training.agreed import VersionedArray
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.collective import Collective
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

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

    @property
    def carries_stops(self) -> bool:
        """Whether all ranks average together: every `sync_period` versions."""
        return self.sync_period is not None

    def arguments(self) -> dict[str, object]:
        """Return the own arguments, checked."""
        Options(sync_period=self.sync_period).engine(1, 0, 0)  # raises what is wrong with it
        return {"sync_period": self.sync_period}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Make the collective."""
        self._model = VersionedArray.like(parameters.flat)
        collective = SyncAllreduce(self.comm, self._model.memory, **self.waits)
        parameters.move(self._model.content)
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
        self._model.tell(self.version)
        average, model = self._connected(SyncAllreduce).sync, self._model
        self.outcome = self.stops.average(average, model.memory, model.stop, self._mean_weight())
        self._weights.clear()
        self.parameters.written()
        self._model.check(self.rank)

    def _mean_weight(self) -> float:
        """Return what this rank's changes count: the mean of the period's steps; 1 without any."""
        return fmean(self._weights or [1.0])

    def state(self) -> dict[str, Any]:
        """Return the weights of the period's steps."""
        return {"weights": list(self._weights)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up the weights that were saved."""
        self._weights = list(state.get("weights", ()))

    def __repr__(self) -> str:
        return f"LocalSGD({plural(self.size, 'rank')}, sync_period={self.sync_period})"
