"""The demo's data and model, functions of the seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

__all__ = ["Digits", "accuracy", "build_model", "draw_batch", "load"]

TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Digits:
    """Handwritten digits, as float32 images of 64 values in 0..1 and int64 classes 0..9."""

    train_images: torch.Tensor
    train_classes: torch.Tensor
    test_images: torch.Tensor
    test_classes: torch.Tensor

    def shard(self, rank: int, size: int) -> Digits:
        """The same with every `size`-th training sample from `rank` on."""
        return Digits(
            self.train_images[rank::size],
            self.train_classes[rank::size],
            self.test_images,
            self.test_classes,
        )


def load(seed: int) -> Digits:
    """Loads scikit-learn's digits, split by `seed` into training and test samples."""
    from sklearn.datasets import load_digits  # seconds of import, which one rank needs

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = torch.from_numpy((digits.data[order] / 16).astype(np.float32))
    classes = torch.from_numpy(digits.target[order].astype(np.int64))
    tests = int(len(order) * TEST_SHARE)
    return Digits(images[tests:], classes[tests:], images[:tests], classes[:tests])


def build_model(seed: int) -> nn.Sequential:
    """A small perceptron for the digits, initialised by `seed`."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def draw_batch(
    shard: Digits, seed: int, rank: int, step: int, batch: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """`batch` images and classes of the shard, drawn with replacement by (seed, rank, step)."""
    draw = np.random.default_rng((seed, rank, step))
    rows = torch.from_numpy(draw.integers(len(shard.train_classes), size=batch))
    return shard.train_images[rows], shard.train_classes[rows]


def accuracy(model: nn.Module, digits: Digits) -> float:
    """Share of the test samples that `model` classifies rightly."""
    with torch.no_grad():
        right = model(digits.test_images).argmax(dim=1) == digits.test_classes
    return float(right.double().mean())
