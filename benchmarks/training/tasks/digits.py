"""Handwritten digits and a small convolutional network: every batch costs the same."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from wagma.demo import data

from .task import Batch, Task

__all__ = ["DigitsTask", "load"]


class DigitsTask(Task):
    """1797 images of 8x8 from scikit-learn, a fifth of them for tests; each rank has its shard."""

    name = "digits"
    measures = "test accuracy"

    def __init__(self, digits: data.Digits) -> None:
        self._digits = digits

    def build_model(self, seed: int) -> nn.Module:
        """Two convolutions and a linear layer, 1898 parameters."""
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 10),
        )

    def optimizer(
        self, parameters: Iterable[torch.nn.Parameter], learning_rate: float
    ) -> torch.optim.Optimizer:
        """SGD with momentum."""
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=0.9)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, float]:
        """Cross entropy."""
        shard = self._digits.shard(batch.rank, batch.size)
        images, classes = data.draw_batch(shard, batch.seed, batch.rank, batch.step, batch.samples)
        return nn.functional.cross_entropy(model(images), classes), 1.0

    def evaluate(self, model: nn.Module) -> float:
        """Share of the test images that are classified rightly."""
        return data.accuracy(model, self._digits)


def load(seed: int) -> DigitsTask:
    """The digits, split by `seed`."""
    return DigitsTask(data.load(seed))
