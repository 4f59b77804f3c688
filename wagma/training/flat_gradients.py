"""Gradients as one flat array, the form in which a collective takes them."""

from __future__ import annotations

import math
import struct
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from wagma.collectives import MismatchError
from wagma.training.agreed import Agreed
from wagma.training.flat import Layout
from wagma.training.stopping import Stops

__all__ = ["FlatGradients"]

# Bytes. Memory for averages above is kept from step to step: malloc returns large blocks to the
# kernel, which maps new ones page by page; that takes longer than to copy into them.
RECYCLED = 4 << 20


class FlatGradients:
    """A flat array into which gradients are gathered, and out of which averages are handed.

    Between the two a collective averages it in place. Behind the gradients there are

    - one element per parameter, 1 where this rank has a gradient: the mean says which parameters
      have one on any rank (the others keep ``grad = None``, and the optimizer skips them everywhere
      alike);
    - the scale of the gradients, as float32, which has to be that of all ranks;
    - one for a number that is averaged as well, such as the loss, which a line search has to see
      alike on every rank;
    - one for what ranks want to stop, see `Stops`.

    The memory stays with the collective. A ``.grad`` is the user's before and after: the averages
    are new tensors, so that one that was kept does not change.

    Args:
        parameters: the parameters that the gradients are of.
        layout: how they lie in `memory`.
        memory: 1-d tensor of `size_for(layout)` elements of the parameters' dtype.
        first: number of the first parameter, in errors.
        stops: what this rank wants, and is told; None: nothing.

    Attributes:
        memory, stops: as given.
        content: the part of it that has the gradients.

    Not thread-safe.
    """

    @staticmethod
    def size_for(layout: Layout) -> int:
        """Return the elements of `memory` for parameters that lie like `layout`."""
        return layout.numel + len(layout.slots) + Agreed.SIZE + 2

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        layout: Layout,
        memory: torch.Tensor,
        first: int = 0,
        stops: Stops | None = None,
    ) -> None:
        self.memory = memory
        self.stops = stops or Stops()
        self._parameters = parameters
        self._first = first
        self._views = [slot.view(memory) for slot in layout.slots]
        self.content = memory[: layout.numel]
        self._present = memory[layout.numel : -2 - Agreed.SIZE]
        self._scale = Agreed(memory[-2 - Agreed.SIZE : -2])
        self._number = memory[-2:-1]
        self._stop = memory[-1:]
        self._spares: dict[int, _Spare] = {}  # of large gradients, by parameter
        memory.zero_()

    @torch.no_grad()
    def gather(self, number: float | torch.Tensor | None, scale: float = 1.0) -> None:
        """Make `memory` this rank's contribution.

        Args:
            number: averaged beside the gradients, a number or a tensor of one element, such as the
                loss; None counts as 0.
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
                    f"the gradient of parameter {self._first + index} has layout "
                    f"{gradient.layout}: only dense gradients can be averaged; make the embedding "
                    "with sparse=False"
                )
            views.append(view)
            found.append(gradient)
        if found:
            torch._foreach_copy_(views, found)
        self._present.copy_(torch.tensor([gradient is not None for gradient in gradients]))
        self._scale.tell(*struct.unpack("i", struct.pack("f", scale)))
        self._number.fill_(number.item() if isinstance(number, torch.Tensor) else number or 0.0)
        self.stops.tell(self._stop)

    def weigh(self, weight: float) -> None:
        """Multiply the gradients in `memory` by `weight`."""
        if weight != 1:
            self.content.mul_(weight)

    def first_nonfinite(self) -> int | None:
        """Return the first parameter whose gradient in `memory` has a NaN or an infinity."""
        if all(map(math.isfinite, self.content.aminmax())):  # NaN is both
            return None
        return next(i for i, view in enumerate(self._views) if not bool(view.isfinite().all()))

    def clear(self) -> None:
        """Make `memory` a contribution without any gradient."""
        self.memory.zero_()
        self.stops.tell(self._stop)

    @torch.no_grad()
    def hand_out(self) -> float:
        """Make the averages in `memory` the parameters' gradients; return the averaged number.

        Raises:
            MismatchError: the ranks have scaled their gradients by different factors.
        """
        self.stops.see(self._stop)
        if self._scale.differs():
            raise MismatchError(
                "the ranks have averaged gradients of different scales: GradScalers must be made "
                "alike and updated alike on all ranks, and every rank has to call "
                "average_gradients(scaler), or none; without it scales need not be equal"
            )
        present = (self._present > 0).tolist()
        for index, (parameter, anywhere) in enumerate(zip(self._parameters, present, strict=True)):
            parameter.grad = self._copy(index) if anywhere else None
        return self._number.item()

    def _copy(self, index: int) -> torch.Tensor:
        view = self._views[index]
        if view.nbytes <= RECYCLED:
            return view.clone()
        spare = self._spares.get(index)
        if spare is None or spare.is_used():
            spare = self._spares[index] = _Spare(view.numel(), view.itemsize)
        bits = torch.from_numpy(spare.lend())
        return bits.view(view.dtype).as_strided(view.shape, view.stride()).copy_(view)


class _Spare:
    """Memory for a gradient, which one tensor has at a time.

    What is lent is a view: a tensor over it, and whatever shares its memory, keeps the view alive.
    """

    def __init__(self, elements: int, itemsize: int) -> None:
        self._memory = np.empty(elements, f"i{itemsize}")
        self._lent: weakref.ref[npt.NDArray[Any]] | None = None

    def is_used(self) -> bool:
        """Return whether a tensor lies in it that somebody has kept."""
        return self._lent is not None and self._lent() is not None

    def lend(self) -> npt.NDArray[Any]:
        """Return the memory, for a new tensor."""
        view = self._memory[:]
        self._lent = weakref.ref(view)
        return view
