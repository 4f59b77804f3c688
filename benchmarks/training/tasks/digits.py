"""Handwritten digits and a small convolutional network: every batch costs the same."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from .task import Batch, Task

TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Digits:
    """Handwritten digits, as float32 images of 64 values in 0..1 and int64 classes 0..9."""

    train_images: torch.Tensor
    train_classes: torch.Tensor
    test_images: torch.Tensor
    test_classes: torch.Tensor

    def shard(self, rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return every `size`-th training sample from `rank` on: images and classes."""
        return self.train_images[rank::size], self.train_classes[rank::size]


class DigitsTask(Task):
    """1797 images of 8x8 from scikit-learn, a fifth of them for tests; each rank has its shard."""

    name = "digits"
    measures = "test accuracy"

    def __init__(self, digits: Digits) -> None:
        self._digits = digits

    def build_model(self, seed: int) -> nn.Module:
        """Return two convolutions and a linear layer, 1898 parameters."""
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
        """Return SGD with momentum."""
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=0.9)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, float]:
        """Return the cross entropy of samples of the rank's shard, drawn with replacement."""
        images, classes = self._digits.shard(batch.rank, batch.size)
        draw = np.random.default_rng(batch.key)
        rows = torch.from_numpy(draw.integers(len(classes), size=batch.samples))
        return nn.functional.cross_entropy(model(images[rows]), classes[rows]), 1.0

    def evaluate(self, model: nn.Module) -> float:
        """Return the share of the test images that are classified rightly."""
        with torch.no_grad():
            guessed = model(self._digits.test_images).argmax(dim=1)
        return float((guessed == self._digits.test_classes).double().mean())


def load(seed: int) -> DigitsTask:
    """Load scikit-learn's digits, split by `seed` into training and test samples."""
    from sklearn.datasets import load_digits  # takes seconds, and one rank needs it

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = torch.from_numpy((digits.data[order] / 16).astype(np.float32))
    classes = torch.from_numpy(digits.target[order].astype(np.int64))
    tests = int(len(order) * TEST_SHARE)
    return DigitsTask(Digits(images[tests:], classes[tests:], images[:tests], classes[:tests]))
