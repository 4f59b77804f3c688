"""Gradients gathered in one flat array, the form in which a collective averages them."""

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

# Bytes. Larger averages reuse their memory in each step: malloc returns large blocks to the kernel,
# and mapping new ones page by page takes longer than the copy.
RECYCLED = 4 << 20


class FlatGradients:
    """Gather gradients into a flat array, and assign averages from it to ``.grad``.

    Between the two a collective averages the array in place. The gradients are followed by

    - one element per parameter, 1 if this rank has a gradient: the mean shows which parameters have
      a gradient on any rank (the others keep ``grad = None``, and the optimizer skips them on all
      ranks);
    - the scale of the gradients, as float32, which has to be equal on all ranks;
    - one number that is averaged as well, such as the loss, which a line search needs to be equal
      on all ranks;
    - one element for stop requests, see `Stops`.

    Averages are new tensors: a reference to an older ``.grad`` keeps its values.

    Args:
        parameters: the parameters of the gradients.
        layout: layout of the gradients in `memory`.
        memory: 1-d tensor of `size_for(layout)` elements of the parameters' dtype and device.
        first: index of the first parameter, for errors.
        stops: stop requests of this rank; None: there are none.

    Attributes:
        memory, stops: as given.
        content: the part of `memory` with the gradients.

    Not thread-safe.
    """

    @staticmethod
    def size_for(layout: Layout) -> int:
        """Return the number of elements of `memory` for parameters with this layout."""
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
        self._rest = memory[layout.numel :]
        self._present, scale, self._number, self._stop = self._split(self._rest)
        self._scale = Agreed(scale)
        self._having: list[bool] = []  # which parameters have a gradient
        self._marks = self._present  # the same as elements
        self._spares: dict[int, _Spare] = {}  # memory of large averages, by parameter
        memory.zero_()

    @staticmethod
    def _split(rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return what follows the gradients: marks of parameters, scale, number, stop request."""
        return rest[: -2 - Agreed.SIZE], rest[-2 - Agreed.SIZE : -2], rest[-2:-1], rest[-1:]

    @torch.no_grad()
    def gather(self, number: float | torch.Tensor | None, scale: float = 1.0) -> None:
        """Copy this rank's contribution into `memory`; a GPU is not waited for.

        Args:
            number: number to average beside the gradients, such as the loss, or a tensor of one
                element; None counts as 0.
            scale: factor of the gradients.

        Raises:
            ValueError: a gradient is sparse.
        """
        gradients = [parameter.grad for parameter in self._parameters]
        views, present = [], []
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
            present.append(gradient)
        if present:
            torch._foreach_copy_(views, present)
        having = [gradient is not None for gradient in gradients]
        if having != self._having:
            self._having = having
            self._marks = torch.tensor(having, device=self.memory.device)
        self._present.copy_(self._marks)
        self._scale.write(*struct.unpack("i", struct.pack("f", scale)))
        if isinstance(number, torch.Tensor):
            self._number.copy_(number.reshape(1))
        else:
            self._number.fill_(number or 0.0)
        self.stops.write(self._stop)

    def weigh(self, weight: float) -> None:
        """Multiply the gradients in `memory` by `weight`."""
        if weight != 1:
            self.content.mul_(weight)

    def first_nonfinite(self) -> int | None:
        """Return the first parameter whose gradient in `memory` is not finite; None: all are."""
        if bool(torch.stack(self.content.aminmax()).isfinite().all()):  # a NaN gives NaN for both
            return None
        return next(i for i, view in enumerate(self._views) if not bool(view.isfinite().all()))

    def clear(self) -> None:
        """Fill `memory` with a contribution without gradients."""
        self.memory.zero_()
        self.stops.write(self._stop)

    @torch.no_grad()
    def hand_out(self) -> float:
        """Assign the averages in `memory` to ``.grad``, and return the averaged number.

        Raises:
            MismatchError: the ranks have scaled their gradients by different factors.
        """
        present, scale, number, stop = self._split(self._rest.cpu())  # the one wait for a GPU
        self.stops.read(stop)
        if Agreed.differs(scale):
            raise MismatchError(
                "the ranks have averaged gradients of different scales: GradScalers must be made "
                "alike and updated alike on all ranks, and every rank has to call "
                "average_gradients(scaler), or none; without it scales need not be equal"
            )
        anywhere = [index for index, mark in enumerate((present > 0).tolist()) if mark]
        averages = dict(zip(anywhere, self._copies(anywhere), strict=True))
        for index, parameter in enumerate(self._parameters):
            parameter.grad = averages.get(index)
        return number.item()

    def _copies(self, indices: Sequence[int]) -> list[torch.Tensor]:
        if not self.memory.is_cuda:
            return [self._copy(index) for index in indices]
        views = [self._views[index] for index in indices]
        copies = [torch.empty_like(view) for view in views]  # torch keeps a GPU's memory itself
        if copies:
            torch._foreach_copy_(copies, views)
        return copies

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
    """Memory for a gradient, lent to one tensor at a time.

    The lent array is a view: every tensor on its memory keeps the view alive.
    """

    def __init__(self, elements: int, itemsize: int) -> None:
        self._memory = np.empty(elements, f"i{itemsize}")
        self._lent: weakref.ref[npt.NDArray[Any]] | None = None

    def is_used(self) -> bool:
        """Return whether a tensor still uses the memory."""
        return self._lent is not None and self._lent() is not None

    def lend(self) -> npt.NDArray[Any]:
        """Return the memory, for a new tensor."""
        view = self._memory[:]
        self._lent = weakref.ref(view)
        return view
