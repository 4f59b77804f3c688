"""SGP: stochastic gradient push, models averaged along a directed graph that changes."""

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

__all__ = ["SGP"]


class SGP(NeighborAveraging):
    """Pushes the model after every local step to `neighbors` ranks, others at each version.

    Of Assran et al., "Stochastic Gradient Push for Distributed Deep Learning" (ICML 2019), their
    Algorithm 1. Of P ranks one sends to those 1, 2, 4, 8 ... ranks behind it in turn, equal shares
    to each and to itself, and waits for those that send to it. With its model x it pushes a weight
    w, 1 at first; x / w is the de-biased model z, at which gradients are computed.

    The parameters always are z. The update u of the inner optimizer belongs to x, so that z changes
    by u / w. As long as all ranks are there every rank gets as much weight as it gives: w is 1, and
    x is z. A rank that leaves takes its weight with it; those that would have heard it take w by
    the shares that came, so that it does not shrink with every version.

    Only parameters are averaged, as with `WAGMA`. `synchronize` averages over all ranks, sum of x
    by sum of w.

    Args:
        comm: the ranks that train together, P of them; "auto": those that the launcher
            started, over MPI or as torchrun does; see `PartialAllreduce`.
        neighbors: ranks that one sends to per version, 1 to P - 1 (1 of one rank), at most 12; the
            paper has 1 and 2, that on WAGMA-SGD up to 4.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Attributes:
        push_weight: w.

    Raises:
        what `Algorithm` does. A wrong number of neighbours is raised, on every rank, when the
        optimizer is made.
    """

    def __init__(
        self,
        comm: Comm = "auto",
        neighbors: int = 1,
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(
            comm,
            graph="exponential",
            neighbors=neighbors,
            **waits,
        )
        self.push_weight = 1.0
        self._before: torch.Tensor | None = None  # z, where it does not change by u

    def check_weight(self, weight: float) -> None:
        """Refuse all but 1: each rank's share of the sum of x is w already."""
        if weight != 1:
            raise ValueError(
                f"weight={weight} with SGP, whose ranks push weights of their own: leave it at 1, "
                "or use AllreduceSGD, LocalSGD or WAGMA"
            )

    def step(self, inner: Optimizer, closure: Callable[[], Any] | None) -> Any:
        """A step of `inner`, whose update is that of x."""
        self._before = None if self.push_weight == 1 else self.parameters.flat.clone()
        return super().step(inner, closure)

    def after_step(self) -> None:
        """Averages the new model with those of the ranks that send to this one."""
        flat = self.parameters.flat
        if self._before is not None:
            flat.sub_(self._before).div_(self.push_weight).add_(self._before)
            self._before = None
        self.outcome = self.collective.exchange(flat, self.push_weight)
        self.parameters.written()
        self.push_weight = self.outcome.weight
        came = len(self.outcome.contributors)
        if 0 < came <= self._neighbors and self.size > 1:
            # No share comes from ranks that have left: w would shrink with every version, and an
            # update, which is divided by it, grow without end.
            self.push_weight *= (self._neighbors + 1) / came

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Averages the models of all ranks."""
        self.outcome = self._average_all(self.push_weight)
        self.push_weight = 1.0

    def state(self) -> dict[str, Any]:
        """The weight."""
        return {"weight": self.push_weight}

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes the weight that was saved."""
        self.push_weight = float(state["weight"])

    def __repr__(self) -> str:
        return f"SGP({plural(self.size, 'rank')}, neighbors={self._neighbors})"
