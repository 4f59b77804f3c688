"""Gradients as one flat array, the form in which a collective takes them."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from wagma.collectives import MismatchError
from wagma.training.flat import FlatParameters, Layout

__all__ = ["FlatGradients"]

# Bytes. Memory for averages above is kept from step to step: malloc returns large blocks to the
# kernel, which maps new ones page by page; that takes longer than to copy into them.
RECYCLED = 4 << 20

SCALE = 64  # elements for the bits of a scale, as float32

UNUSED = 2  # references to an array that only a local variable has, as sys.getrefcount counts


class FlatGradients:
    """A flat array into which gradients are gathered, and out of which averages are handed.

    Between the two a collective averages it in place. Behind the gradients there are

    - one element per parameter, 1 where this rank has a gradient: the mean says which parameters
      have one on any rank (the others keep ``grad = None``, and the optimizer skips them everywhere
      alike);
    - two for each bit of the scale of the gradients, one of which is 1: where both have a mean that
      is not 0 the ranks have different scales, whatever the dtype rounds to;
    - one for the loss, which a line search has to see alike on every rank.

    The memory stays with the collective. A ``.grad`` is the user's before and after: the averages
    are new tensors, so that one that was kept does not change.

    Args:
        parameters: the parameters that the gradients are of.
        memory: 1-d tensor of `size_for(parameters.layout)` elements of the parameters' dtype.

    Not thread-safe.
    """

    @staticmethod
    def size_for(layout: Layout) -> int:
        """Return the elements of `memory` for parameters that lie like `layout`."""
        return layout.numel + len(layout.slots) + SCALE + 1

    def __init__(self, parameters: FlatParameters, memory: torch.Tensor) -> None:
        layout = parameters.layout
        self.memory = memory
        self._parameters = parameters.parameters
        self._views = [slot.view(memory) for slot in layout.slots]
        self._content = memory[: layout.numel]
        self._present = memory[layout.numel : -1 - SCALE]
        self._scale = memory[-1 - SCALE : -1]
        self._loss = memory[-1:]
        self._spares: dict[int, npt.NDArray[Any]] = {}  # of large gradients, by parameter
        memory.zero_()

    @torch.no_grad()
    def gather(self, loss: float | torch.Tensor | None, scale: float = 1.0) -> None:
        """Make `memory` this rank's contribution.

        Args:
            loss: of this evaluation, a number or a tensor of one element; None counts as 0.
            scale: factor of the gradients.

        Raises:
            ValueError: a gradient is sparse.
        """
        gradients = [parameter.grad for parameter in self._parameters]
        views, found = [], []
        for index, (view, gradient) in enumerate(zip(self._views, gradients, strict=True)):
            if gradient is None:
                view.zero_()
                continue
            if gradient.layout != torch.strided:
                raise ValueError(
                    f"the gradient of parameter {index} has layout {gradient.layout}: only dense "
                    "gradients can be averaged; make the embedding with sparse=False"
                )
            views.append(view)
            found.append(gradient)
        if found:
            torch._foreach_copy_(views, found)
        self._present.copy_(torch.tensor([gradient is not None for gradient in gradients]))
        self._scale.copy_(_bits(scale))
        self._loss.fill_(loss.item() if isinstance(loss, torch.Tensor) else loss or 0.0)

    def weigh(self, weight: float) -> None:
        """Multiply the gradients in `memory` by `weight`."""
        if weight != 1:
            self._content.mul_(weight)

    def clear(self) -> None:
        """Make `memory` a contribution without any gradient."""
        self.memory.zero_()

    @torch.no_grad()
    def hand_out(self) -> float:
        """Make the averages in `memory` the parameters' gradients; return the averaged loss.

        Raises:
            MismatchError: the ranks have scaled their gradients by different factors.
        """
        if (self._scale.view(2, -1) > 0).all(dim=0).any():
            raise MismatchError(
                "the ranks have averaged gradients of different scales: GradScalers must be made "
                "alike and updated alike on all ranks, and every rank has to call "
                "average_gradients(scaler), or none; without it scales need not be equal"
            )
        present = (self._present > 0).tolist()
        for index, (parameter, anywhere) in enumerate(zip(self._parameters, present, strict=True)):
            parameter.grad = self._copy(index) if anywhere else None
        return self._loss.item()

    def _copy(self, index: int) -> torch.Tensor:
        view = self._views[index]
        if view.nbytes <= RECYCLED:
            return view.clone()
        bits = self._spares.pop(index, None)
        if bits is None or sys.getrefcount(bits) > UNUSED:  # a tensor lies in it that somebody kept
            bits = np.empty(view.numel(), f"i{view.itemsize}")
        self._spares[index] = bits
        copy = torch.from_numpy(bits).view(view.dtype).as_strided(view.shape, view.stride())
        return copy.copy_(view)


@lru_cache(4)
def _bits(scale: float) -> torch.Tensor:
    bits = torch.tensor([scale], dtype=torch.float32).view(torch.int32)
    ones = (bits >> torch.arange(32)) & 1
    return torch.cat([ones, 1 - ones])
