"""D-PSGD: models averaged with the neighbours on a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from wagma.training.ranks import Waits
from wagma.training.strategies.neighbors import NeighborAveraging
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm


class DPSGD(NeighborAveraging):
    """Average the model with those of the two neighbours on a ring after every local step.

    From Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?" (NIPS 2017).
    Each of the three models has weight 1/3; with two ranks each has 1/2; a single rank is alone. A
    rank waits for its neighbours: the delay of a straggler reaches one more rank in each version.

    Models are averaged after the step, W (x + u), as with `WAGMA`. The paper's Algorithm 1 averages
    while the gradient is computed, W x + u, which costs no time if both overlap. Here the exchange
    blocks, so that a step uses one set of parameters from gradient to update.

    Only parameters are averaged, as with `WAGMA`. `synchronize` averages over all ranks.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does.
    """

    def __init__(self, comm: Comm = "auto", **waits: Unpack[Waits]) -> None:
        super().__init__(comm, graph="ring", neighbors=1, **waits)

    def after_step(self) -> None:
        """Average the new model with the neighbours' models."""
        self.outcome = self.collective.exchange(self.parameters.flat, self.weight)
        self.parameters.written()

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Average the models of all ranks."""
        self.outcome = self._average_all(1.0)

    def __repr__(self) -> str:
        return f"DPSGD({plural(self.size, 'rank')})"
