"""D-PSGD: models averaged on a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from wagma.training.ranks import Waits
from wagma.training.strategies.neighbors import NeighborAveraging
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

__all__ = ["DPSGD"]


class DPSGD(NeighborAveraging):
    """Averages the model after every local step with those of the two neighbours on a ring.

    Of Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?" (NIPS 2017).
    Each of the three models has weight 1/3 (two ranks: 1/2 each; one rank is alone). A rank waits
    for its neighbours, they for theirs: a straggler is felt by all, a version later at each further
    rank.

    Models are averaged after the step, W (x + u), as with `WAGMA`. In the paper's Algorithm 1 they
    are averaged while the gradient is computed, W x + u, which costs no time where both overlap;
    here the exchange blocks, and the step then sees one set of parameters from gradient to update.

    Only parameters are averaged, as with `WAGMA`. `synchronize` averages over all ranks.

    Args:
        comm: the ranks that train together; "auto": those that the launcher
            started, over MPI or as torchrun does; see `PartialAllreduce`.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does.
    """

    def __init__(
        self,
        comm: Comm = "auto",
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(
            comm,
            graph="ring",
            neighbors=1,
            **waits,
        )

    def after_step(self) -> None:
        """Averages the new model with the neighbours'."""
        self.outcome = self.collective.exchange(self.parameters.flat, self.weight)
        self.parameters.written()

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Averages the models of all ranks."""
        self.outcome = self._average_all(1.0)

    def __repr__(self) -> str:
        return f"DPSGD({plural(self.size, 'rank')})"
