"""Local SGD: local steps, and an average of all models every `sync_period` steps."""

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


class LocalSGD(Algorithm):
    """Make `sync_period` local steps, then average the models of all ranks, waiting for all.

    From Stich, "Local SGD Converges Fast and Communicates Little" (ICLR 2019); with
    ``sync_period=1`` it is the synchronous model averaging that the figures of the WAGMA-SGD paper
    call local SGD.

    A version is a step, and versions t with (t + 1) % sync_period == 0 average. Other versions call
    no collective: `outcome` is None after them. Therefore a model is averaged together with its
    version, and averaging models of different versions is an error. Only parameters are averaged,
    as with `WAGMA`. The weight of a model is the mean weight of the steps in its period.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`.
        sync_period: versions from one average to the next, tau; None: only `synchronize` averages.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does. Creating the optimizer with a wrong `sync_period` raises ValueError
        or TypeError on every rank.
    """

    def __init__(
        self, comm: Comm = "auto", sync_period: int | None = 10, **waits: Unpack[Waits]
    ) -> None:
        super().__init__(comm, **waits)
        self.sync_period = sync_period
        self._weights: list[float] = []  # of the steps of this period

    @property
    def carries_stops(self) -> bool:
        """Whether all ranks average together: every `sync_period` versions."""
        return self.sync_period is not None

    def arguments(self) -> dict[str, object]:
        """Return the checked arguments."""
        Options(sync_period=self.sync_period).engine(1, 0, 0)  # raises what is wrong with it
        return {"sync_period": self.sync_period}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create the collective."""
        self._model = VersionedArray.like(parameters.flat)
        collective = SyncAllreduce(self.comm, self._model.memory, **self.waits)
        parameters.move(self._model.content)
        return (collective,)

    def after_step(self) -> None:
        """Average the new model at the end of a period."""
        self._weights.append(self.weight)
        if self.sync_period is not None and (self.version + 1) % self.sync_period == 0:
            self.synchronize(final=False)
        else:
            self.outcome = None
            self.count_versions(1)

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Average the models of all ranks, weighted by their steps since the last average.

        Raises:
            MismatchError: the models are of different versions; on every rank, where models of
                weight 0 are not compared.
        """
        self._model.write_version(self.version)
        average, model = self._connected(SyncAllreduce).sync, self._model
        self.outcome = self.stops.average(average, model.memory, model.stop, self._mean_weight())
        self._weights.clear()
        self.parameters.written()
        self._model.check(self.rank)

    def _mean_weight(self) -> float:
        """Return the mean weight of the period's steps; 1 without steps."""
        return fmean(self._weights or [1.0])

    def state(self) -> dict[str, Any]:
        """Return the weights of the period's steps."""
        return {"weights": list(self._weights)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._weights = list(state.get("weights", ()))

    def __repr__(self) -> str:
        return f"LocalSGD({plural(self.size, 'rank')}, sync_period={self.sync_period})"
