"""Allreduce-SGD: the paper's synchronous baseline, gradients averaged over all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.optim import Optimizer

from wagma.algorithms.base import Algorithm
from wagma.collectives import PartialAllreduce
from wagma.collectives.options import Transport
from wagma.flat import FlatGradients, FlatParameters

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["AllreduceSGD"]


class AllreduceSGD(Algorithm):
    """Averages the gradients of all ranks before every step; everybody waits for the slowest.

    The gradients lie in the collective's own memory and are reduced in place. A parameter that has
    no gradient on any rank keeps ``grad = None``; where some ranks have one, the others count as
    zero. The loss that a closure returns is averaged too, in the parameters' dtype, so that an
    optimizer that looks at it (LBFGS) decides alike on every rank. A version is one averaging: with
    a closure one evaluation of it.

    Args:
        comm: the ranks that train together; None: those that a launcher such as torchrun started
            on this machine, see `PartialAllreduce`.
        timeout: seconds until a wait ends in StallError; None: never.
        stall_warning: seconds between warnings about a stuck wait.
        transport: "shm", "mpi" or "auto", see `wagma.collectives.Options`.
    """

    def __init__(
        self,
        comm: MPI.Intracomm | None,
        *,
        timeout: float | None = None,
        stall_warning: float = 60.0,
        transport: Transport = "auto",
    ) -> None:
        super().__init__(comm, timeout=timeout, stall_warning=stall_warning, transport=transport)
        self._gradients: FlatGradients | None = None

    def _connect(self, parameters: FlatParameters) -> PartialAllreduce:
        like = torch.zeros(FlatGradients.size_for(parameters.layout), dtype=parameters.layout.dtype)
        collective = PartialAllreduce(
            self.comm,
            like,
            quorum="all",
            timeout=self._timeout,
            stall_warning=self._stall_warning,
            transport=self._transport,
            name="AllreduceSGD",
        )
        memory = torch.from_numpy(collective.empty()).view(parameters.layout.dtype)
        self._gradients = FlatGradients(parameters, memory)
        return collective

    @property
    def gradients(self) -> FlatGradients:
        """The gradients in the collective's memory."""
        if self._gradients is None:
            raise RuntimeError("AllreduceSGD serves no optimizer: it is new, or closed")
        return self._gradients

    def before_step(self, loss: torch.Tensor | float | None) -> torch.Tensor | float | None:
        """Averages gradients and loss over all ranks."""
        mean = self._average(loss, 1.0)
        if isinstance(loss, torch.Tensor):
            return torch.full_like(loss, mean, requires_grad=False)
        return None if loss is None else mean

    def passive_step(self, inner: Optimizer) -> None:
        """Applies the mean of the other ranks' gradients."""
        self._average(None, 0.0)
        inner.step()

    def _average(self, loss: torch.Tensor | float | None, weight: float) -> float:
        gradients = self.gradients
        with torch.no_grad():
            gradients.collect(loss)
            self.outcome = self.collective.allreduce(gradients.memory, weight)
            return gradients.distribute()

    def synchronize(self) -> None:
        """Averages the parameters. The gradients, whose memory is used for it, are cleared."""
        gradients, flat = self.gradients, self.parameters.flat
        for parameter in self.parameters.parameters:
            parameter.grad = None
        gradients.memory.zero_()
        part = gradients.memory[: flat.numel()]
        part.copy_(flat)
        self.outcome = self.collective.sync(gradients.memory)
        flat.copy_(part)

    def _release(self) -> None:
        if self._gradients is not None:
            self._gradients.detach()
            self._gradients = None

    def __repr__(self) -> str:
        return f"AllreduceSGD({self.size} ranks)"
