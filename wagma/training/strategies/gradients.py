"""The base of algorithms that average gradients."""

from __future__ import annotations

import torch

from wagma.collectives import PartialAllreduce
from wagma.training.flat import FlatParameters, Layout
from wagma.training.flat_gradients import FlatGradients
from wagma.training.strategies.base import Algorithm
from wagma.units import plural

__all__ = ["GradientAveraging"]


class GradientAveraging(Algorithm):
    """Average gradients in one array of a collective over all ranks; models stay equal.

    A parameter without a gradient on any rank keeps ``grad = None``; if some ranks have one, the
    others count as zero.

    Args, attributes, raises: those of `Algorithm`.
    """

    _gradients: FlatGradients | None = None

    @property
    def carries_stops(self) -> bool:
        """Whether all ranks average together: every version."""
        return True

    @staticmethod
    def _like(layout: Layout) -> torch.Tensor:
        """Return a zeroed array for the gradients of parameters with this layout."""
        return torch.zeros(FlatGradients.size_for(layout), dtype=layout.dtype)

    def _place(self, parameters: FlatParameters, memory: torch.Tensor) -> None:
        """Average the gradients of `parameters` in `memory` from now on."""
        tensors, layout = parameters.parameters, parameters.layout
        self._gradients = FlatGradients(tensors, layout, memory, stops=self.stops)

    @property
    def collective(self) -> PartialAllreduce:
        """The collective that averages; its own counter starts at 0 in every process."""
        return self._connected(PartialAllreduce)

    @property
    def gradients(self) -> FlatGradients:
        """The gradients in the collective's memory."""
        if self._gradients is None:
            raise RuntimeError(f"{type(self).__name__} serves no optimizer: it is new, or closed")
        return self._gradients

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Average the parameters, in the memory for gradients."""
        memory, flat = self.gradients.memory, self.parameters.flat
        memory.zero_()
        part = memory[: flat.numel()]
        part.copy_(flat)
        self.outcome = self.collective.sync(memory)
        flat.copy_(part)
        self.parameters.written()

    def release(self) -> None:
        """Release the collective's memory."""
        self._gradients = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({plural(self.size, 'rank')})"
