"""A small network for scikit-learn's digits, whose gradients are those of a cluster's nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wagma.reproduce.digits import CLASSES, softmax
from wagma.theory.checks import Floats, Ints

__all__ = ["Gradient", "Network"]


class Gradient(NamedTuple):
    """The gradient of a total batch that nodes have divided.

    Attributes:
        mean: over all samples, one array for each weight matrix: sum_i (b_i / B) g_i.
        local_sqnorms: |g_i|^2 of each node: (n,).
        sqnorm: |g|^2 of the mean.
    """

    mean: list[Floats]
    local_sqnorms: list[float]
    sqnorm: float


class Network:
    """One hidden layer of rectifiers, softmax and cross-entropy.

    Args:
        inputs: of an image, the last one is 1.
        hidden: units.
        rng: of the first weights.
    """

    def __init__(self, inputs: int, hidden: int, rng: np.random.Generator) -> None:
        self.weights: list[Floats] = [
            rng.normal(scale=np.sqrt(2 / inputs), size=(inputs, hidden)),
            rng.normal(scale=np.sqrt(2 / hidden), size=(hidden + 1, CLASSES)),
        ]

    def gradient(self, images: Floats, labels: Ints, batches: Sequence[int]) -> Gradient:
        """Return the gradient of the mean loss, from those of nodes with so many samples each.

        Args:
            images: (B, inputs).
            labels: (B,).
            batches: b_i >= 1, of which B is the sum.
        """
        hidden = self._hidden(images)
        errors = softmax(hidden @ self.weights[1])
        errors[np.arange(len(labels)), labels] -= 1
        below = (errors @ self.weights[1][:-1].T) * (hidden[:, :-1] > 0)
        mean = [np.zeros_like(weights) for weights in self.weights]
        norms, first = [], 0
        for batch in batches:
            rows = slice(first, first := first + batch)
            own = [images[rows].T @ below[rows] / batch, hidden[rows].T @ errors[rows] / batch]
            norms.append(_sqnorm(own))
            for total, part in zip(mean, own, strict=True):
                total += (batch / len(labels)) * part
        return Gradient(mean, norms, _sqnorm(mean))

    def step(self, gradient: Gradient, rate: float) -> None:
        """Make a step of SGD."""
        for weights, part in zip(self.weights, gradient.mean, strict=True):
            weights -= rate * part

    def accuracy(self, images: Floats, labels: Ints) -> float:
        """Return the share of the images whose digit is recognised."""
        found = (self._hidden(images) @ self.weights[1]).argmax(axis=1)
        return float((found == labels).mean())

    def loss(self, images: Floats, labels: Ints) -> float:
        """Return the mean cross-entropy."""
        shares = softmax(self._hidden(images) @ self.weights[1])
        return float(-np.log(shares[np.arange(len(labels)), labels]).mean())

    def _hidden(self, images: Floats) -> Floats:
        units = np.maximum(images @ self.weights[0], 0)
        return np.hstack([units, np.ones((len(images), 1))])


def _sqnorm(parts: list[Floats]) -> float:
    return float(sum((part**2).sum() for part in parts))
