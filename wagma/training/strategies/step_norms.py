"""Squared norms of the gradients of steps, from which the gradient noise scale follows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from wagma.training.strategies.step_table import REMEMBERED

__all__ = ["NORMS", "StepNorms", "squared_norm"]

NORMS = 2  # per step: of this rank's gradient, and of the mean over all ranks


def squared_norm(parameters: Sequence[torch.Tensor], scale: float = 1.0) -> float:
    """Return the squared norm of the parameters' gradients, divided by `scale`; 0 without any."""
    gradients = [one.grad for one in parameters if one.grad is not None]
    if not gradients:
        return 0.0
    norms = torch.stack(torch._foreach_norm(gradients))
    return float(norms.double().square().sum()) / scale**2


class StepNorms:
    """The squared norms of the newest `REMEMBERED` versions."""

    def __init__(self) -> None:
        self._norms: dict[int, tuple[float, float]] = {}

    def add(self, version: int, own: float, mean: float) -> None:
        """Record the norms of a version, unless one is not finite; forget old ones."""
        while self._norms and (oldest := next(iter(self._norms))) <= version - REMEMBERED:
            del self._norms[oldest]
        if math.isfinite(own + mean):
            self._norms[version] = (own, mean)

    def mean(self, versions: Iterable[int]) -> list[float]:
        """Return the mean of both norms over these versions; -1 where none is known."""
        known = [self._norms[version] for version in versions if version in self._norms]
        return np.mean(known, axis=0).tolist() if known else [-1.0] * NORMS

    def clear(self) -> None:
        """Forget all versions."""
        self._norms.clear()
