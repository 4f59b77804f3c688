"""A parameter server's sum of gradients, and its step with their mean."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch.optim import Optimizer

from wagma.collectives.parameter_server.member import Shard
from wagma.training.arrays import HostCopy
from wagma.training.flat import FlatParameters, Layout

Bytes = npt.NDArray[np.uint8]


def bytes_of(tensor: torch.Tensor) -> Bytes:
    """Return the memory of a contiguous tensor on the CPU."""
    content: Bytes = tensor.view(-1).view(torch.uint8).numpy()
    return content


def cut(layout: Layout, servers: int) -> list[tuple[int, int]]:
    """Return (first, end) of each server's parameters, in parts of about equal size.

    Raises:
        ValueError: there are more servers than parameters.
    """
    count = len(layout.slots)
    if servers > count:
        raise ValueError(
            f"servers={servers} is more than the {count} tensors of the model, which are not "
            "split: pass fewer servers"
        )
    cuts = [0]
    for server in range(1, servers):
        wanted = layout.numel * server / servers
        free = range(cuts[-1] + 1, count - servers + server + 1)
        cuts.append(min(free, key=lambda index: abs(layout.slots[index].offset - wanted)))
    return list(pairwise([*cuts, count]))


class GradientSum:
    """Sum the gradients of the next version, and step with their mean.

    Gradients have the format of `FlatGradients`. They are summed on the host, 16-bit ones in
    float32.

    Args:
        parameters: all parameters of the model.
        model: of their flat tensor; fetched after a step.
        inner: the optimizer to step.
        own: (first, end) of this server's parameters.
    """

    def __init__(
        self, parameters: FlatParameters, model: HostCopy, inner: Optimizer, own: tuple[int, int]
    ) -> None:
        layout = parameters.layout
        self._parameters = parameters
        self._model = model
        self._inner = inner
        self._own = own
        start, end = layout.span(*own)
        self._parts = [(start, end), (layout.numel, layout.numel + len(layout.slots))]
        dtype = torch.float32 if layout.dtype.itemsize == 2 else layout.dtype
        self._sum = torch.empty(layout.numel + len(layout.slots), dtype=dtype)
        self._weight: float | None = None  # None: no gradient was added

    def add(self, gradient: Bytes, weight: float) -> None:
        """Add a gradient, as bytes."""
        new = torch.from_numpy(gradient).view(self._parameters.layout.dtype)
        for start, end in self._parts:
            total, part = self._sum[start:end], new[start:end]
            if self._weight is not None:
                total.add_(part, alpha=weight)
            elif weight == 1:
                total.copy_(part)
            else:
                total.copy_(part).mul_(weight)
        self._weight = (self._weight or 0.0) + weight

    @torch.no_grad()
    def apply(self) -> None:
        """Step with the mean, if any gradient was added."""
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
            parameter.grad = None if mean is None else mean.to(layout.device, layout.dtype)
        with torch.enable_grad():
            self._inner.step()
        for parameter in self._parameters.parameters:
            parameter.grad = None
        self._model.fetch()

    def drop(self) -> None:
        """Discard the sum."""
        self._weight = None


def shards_of(layout: Layout, servers: int) -> list[Shard]:
    """Return the byte ranges of the model and of a gradient that each server needs."""
    size = layout.dtype.itemsize
    flags = (layout.numel * size, (layout.numel + len(layout.slots)) * size)
    models = [layout.span(*own) for own in cut(layout, servers)]
    return [
        Shard((start * size, end * size), ((start * size, end * size), flags))
        for start, end in models
    ]
