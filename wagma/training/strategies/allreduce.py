"""Allreduce-SGD: the paper's synchronous baseline, gradients averaged over all ranks."""

from __future__ import annotations

import torch
from torch.optim import Optimizer

from wagma.collectives import SyncAllreduce
from wagma.training.flat import FlatParameters
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.gradients import GradientAveraging

__all__ = ["AllreduceSGD"]


class AllreduceSGD(GradientAveraging):
    """Averages the gradients of all ranks before every step; everybody waits for the slowest.

    A step copies the gradients into the collective's memory, where they are reduced in place, and
    makes the averages the new ``.grad``; a gradient that was kept stays what it was. A parameter
    that has no gradient on any rank keeps ``grad = None``; where some ranks have one, the others
    count as zero. The loss that a closure returns is averaged too, in the parameters' dtype, so
    that an optimizer that looks at it (LBFGS) decides alike on every rank. A version is one
    averaging: with a closure one evaluation of it. With weights the averages of gradients and loss
    are sum(w g) / sum(w).

    Args:
        comm: the ranks that train together; "auto": those that the launcher
            started, over MPI or as torchrun does; see `PartialAllreduce`.
        waits: timeout, stall_warning and transport, see `Algorithm`.
    """

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Make the collective."""
        dtype = parameters.layout.dtype
        collective = SyncAllreduce(self.comm, self._like(parameters.layout), **self.waits)
        self._place(parameters, torch.from_numpy(collective.empty()).view(dtype))
        return (collective,)

    def before_step(self, loss: torch.Tensor | float | None) -> torch.Tensor | float | None:
        """Averages gradients and loss over all ranks."""
        mean = self._average(loss, self.weight)
        if isinstance(loss, torch.Tensor):
            return torch.full_like(loss, mean, requires_grad=False)
        return None if loss is None else mean

    def passive_step(self, inner: Optimizer) -> None:
        """Applies the mean of the other ranks' gradients."""
        self._average(None, 0.0)
        inner.step()

    def average_gradients(self, scale: float = 1.0) -> None:
        """Average the gradients over all ranks: one version."""
        self._average(None, self.weight, scale)

    def _average(
        self, loss: torch.Tensor | float | None, weight: float, scale: float = 1.0
    ) -> float:
        gradients = self.gradients
        if weight > 0:
            gradients.gather(loss, scale)
        else:  # the gradients may be anything
            gradients.clear()
        self.outcome = self.collective.allreduce(gradients.memory, weight)
        return gradients.hand_out()
