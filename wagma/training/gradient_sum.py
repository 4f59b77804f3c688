"""What a parameter server does with gradients: their mean, and a step of its part of the model."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch.optim import Optimizer

from wagma.collectives.parameter_server.member import Shard
from wagma.training.flat import FlatParameters, Layout

__all__ = ["GradientSum", "bytes_of", "cut", "shards_of"]

Bytes = npt.NDArray[np.uint8]


def bytes_of(tensor: torch.Tensor) -> Bytes:
    """Return the memory of a contiguous tensor on the CPU."""
    content: Bytes = tensor.view(-1).view(torch.uint8).numpy()
    return content


def cut(layout: Layout, servers: int) -> list[tuple[int, int]]:
    """Return (first, end) of the parameters of each server: parts of about equal size.

    Raises:
        ValueError: there are more servers than parameters.
    """
    count = len(layout.slots)
    if servers > count:
        raise ValueError(
            f"servers={servers} is more than the {count} tensors of the model, which are not cut: "
            "pass fewer servers"
        )
    cuts = [0]
    for server in range(1, servers):
        wanted = layout.numel * server / servers
        free = range(cuts[-1] + 1, count - servers + server + 1)
        cuts.append(min(free, key=lambda index: abs(layout.slots[index].offset - wanted)))
    return list(pairwise([*cuts, count]))


class GradientSum:
    """The sum of the gradients of a coming version, and the step with their mean.

    Gradients are what `FlatGradients` gathers. Those of 16 bits are summed in float32.

    Args:
        parameters: all of the model.
        inner: the optimizer that steps.
        own: (first, end) of the parameters that are stepped here.
    """

    def __init__(self, parameters: FlatParameters, inner: Optimizer, own: tuple[int, int]) -> None:
        layout = parameters.layout
        self._parameters = parameters
        self._inner = inner
        self._own = own
        start, end = layout.span(*own)
        self._parts = [(start, end), (layout.numel, layout.numel + len(layout.slots))]
        dtype = torch.float32 if layout.dtype.itemsize == 2 else layout.dtype
        self._sum = torch.empty(layout.numel + len(layout.slots), dtype=dtype)
        self._weight: float | None = None  # None: nothing is added

    def add(self, gradient: Bytes, weight: float) -> None:
        """Add a gradient, as bytes."""
        new = torch.from_numpy(gradient).view(self._parameters.layout.dtype)
        for start, end in self._parts:
            mine, its = self._sum[start:end], new[start:end]
            if self._weight is not None:
                mine.add_(its, alpha=weight)
            elif weight == 1:
                mine.copy_(its)
            else:
                mine.copy_(its).mul_(weight)
        self._weight = (self._weight or 0.0) + weight

    @torch.no_grad()
    def apply(self) -> None:
        """Step with the mean; without any gradient nothing changes."""
        weight, self._weight = self._weight, None
        if not weight:
            return
        layout, total = self._parameters.layout, self._sum
        (start, end), (flags, _) = self._parts
        if weight != 1:
            total[start:end].div_(weight)
        first, last = self._own
        present = (total[flags:] > 0).tolist()
        for index, parameter in enumerate(self._parameters.parameters):
            here = first <= index < last and present[index]
            mean = layout.slots[index].view(total) if here else None
            parameter.grad = None if mean is None else mean.to(layout.dtype)
        with torch.enable_grad():
            self._inner.step()
        for parameter in self._parameters.parameters:
            parameter.grad = None

    def drop(self) -> None:
        """Begin a new sum."""
        self._weight = None


def shards_of(layout: Layout, servers: int) -> list[Shard]:
    """Return the part of the model, and of a gradient, that each server needs, in bytes."""
    size = layout.dtype.itemsize
    flags = (layout.numel * size, (layout.numel + len(layout.slots)) * size)
    models = [layout.span(*own) for own in cut(layout, servers)]
    return [
        Shard((start * size, end * size), ((start * size, end * size), flags))
        for start, end in models
    ]
