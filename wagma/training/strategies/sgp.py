"""SGP: stochastic gradient push, models averaged along a changing directed graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch.optim import Optimizer

from wagma.training.ranks import Waits
from wagma.training.strategies.neighbors import NeighborAveraging
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm


class SGP(NeighborAveraging):
    """Push the model after every local step to `neighbors` ranks, which change every version.

    Algorithm 1 of Assran et al., "Stochastic Gradient Push for Distributed Deep Learning" (ICML
    2019). A rank sends to the ranks 1, 2, 4, 8 ... places after it in turn, with equal shares for
    each receiver and itself, and waits for the ranks that send to it. With its model x it pushes a
    weight w, initially 1; x / w is the de-biased model z, at which gradients are computed.

    The parameters always hold z. The update u of the inner optimizer belongs to x, so that z
    changes by u / w. While all ranks take part every rank receives as much weight as it sends: w is
    1, and x is z. A rank that leaves takes its weight along; its receivers then scale w by the
    number of shares that arrived, so that w does not shrink with every version.

    Only parameters are averaged, as with `WAGMA`. `synchronize` averages over all ranks: the sum of
    x divided by the sum of w.

    Args:
        comm: the P ranks that train together; "auto": those that the launcher started, over MPI or
            as torchrun does; see `PartialAllreduce`.
        neighbors: ranks to which a rank sends per version, 1 to P - 1 (1 with one rank), at most
            12. The paper uses 1 and 2, the WAGMA-SGD paper up to 4.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Attributes:
        push_weight: w.

    Raises:
        what `Algorithm` does. Creating the optimizer with a wrong `neighbors` raises ValueError or
        TypeError on every rank.
    """

    def __init__(self, comm: Comm = "auto", neighbors: int = 1, **waits: Unpack[Waits]) -> None:
        super().__init__(comm, graph="exponential", neighbors=neighbors, **waits)
        self.push_weight = 1.0
        self._before: torch.Tensor | None = None  # z before the step, if w is not 1

    def check_weight(self, weight: float) -> None:
        """Refuse weights other than 1: w already is each rank's weight."""
        if weight != 1:
            raise ValueError(
                f"weight={weight} with SGP, which pushes weights of its own: leave it at 1, "
                "or use AllreduceSGD, LocalSGD or WAGMA"
            )

    def step(self, inner: Optimizer, closure: Callable[[], Any] | None) -> Any:
        """Make a step of `inner`, whose update applies to x."""
        self._before = None if self.push_weight == 1 else self.parameters.flat.clone()
        return super().step(inner, closure)

    def after_step(self) -> None:
        """Average the new model with those of the ranks that send to this one."""
        flat = self.parameters.flat
        if self._before is not None:
            flat.sub_(self._before).div_(self.push_weight).add_(self._before)
            self._before = None
        self.outcome = self.collective.exchange(flat, self.push_weight)
        self.parameters.written()
        self.push_weight = self.outcome.weight
        arrived = len(self.outcome.contributors)
        if 0 < arrived <= self._neighbors and self.size > 1:
            # A rank that left sends no share: w would shrink with every version, and the updates,
            # which are divided by w, would grow without bound.
            self.push_weight *= (self._neighbors + 1) / arrived

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Average the models of all ranks."""
        self.outcome = self._average_all(self.push_weight)
        self.push_weight = 1.0

    def state(self) -> dict[str, Any]:
        """Return the push weight."""
        return {"weight": self.push_weight}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the push weight."""
        self.push_weight = float(state["weight"])

    def __repr__(self) -> str:
        return f"SGP({plural(self.size, 'rank')}, neighbors={self._neighbors})"
