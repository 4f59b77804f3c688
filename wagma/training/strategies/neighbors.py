"""The base of algorithms that average models with neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from wagma.collectives import NeighborExchange, Outcome, SyncAllreduce
from wagma.collectives.graph_options import Graph
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.collective import Collective

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm


class NeighborAveraging(Algorithm):
    """Averages the model after every local step with those of the rank's neighbours.

    Args:
        comm, waits: see `Algorithm`.
        graph, neighbors: which rank sends to which, see `wagma.collectives.NeighborExchange`.

    Raises:
        what `Algorithm` does.
    """

    def __init__(self, comm: Comm, *, graph: Graph, neighbors: int, **waits: Unpack[Waits]) -> None:
        super().__init__(comm, **waits)
        self._graph: Graph = graph
        self._neighbors = neighbors
        # Versions after which the graph repeats: the number of powers of two below P.
        self._cycle = max(1, (self.size - 1).bit_length()) if graph == "exponential" else 1

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create the exchange, and the allreduce for `synchronize`."""
        exchange = NeighborExchange(
            self.comm, parameters.flat, graph=self._graph, neighbors=self._neighbors, **self.waits
        )
        # For `synchronize`, which all ranks call: no progress thread is needed.
        everyone = SyncAllreduce(self.comm, parameters.flat, progress="main", **self.waits)
        return exchange, everyone

    @property
    def collective(self) -> NeighborExchange:
        """The exchange with neighbours; its own counter starts at 0 in every process."""
        return self._connected(NeighborExchange)

    def stop_period(self) -> int:
        """Return P + 1: neighbours are at most one version apart, and ranks fewer than P."""
        return 1 + self.size

    def _average_all(self, weight: float) -> Outcome:
        """Average the models of all ranks by weight: one version."""
        outcome = self._connected(SyncAllreduce).sync(self.parameters.flat, weight)
        self.parameters.written()
        self._pass_versions(1)
        return outcome

    def _pass_versions(self, number: int) -> None:
        """Pass versions of the exchange without contributions; models stay as they are."""
        for _ in range(number):
            self.collective.exchange(self.parameters.flat, 0.0)

    def restart(self, version: int) -> None:
        """Pass versions until the neighbours are those of `version`."""
        self._pass_versions((version - self.collective.version) % self._cycle)
