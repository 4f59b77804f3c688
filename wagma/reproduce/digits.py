"""Handwritten digits of scikit-learn, 8x8, which stand for MNIST: it needs no download."""

import numpy as np

from wagma.theory.checks import Floats, Ints

CLASSES = 10
# The mean of |x|^2 over MNIST's images with pixels from 0 to 1: the noise of a gradient, and the
# learning rates that are stable, go by it.
_MNIST_SQUARE = 88.0


def load() -> tuple[Floats, Ints]:
    """Return images, (1797, 65), and labels, (1797,).

    Each image is followed by a 1 for the bias. All are scaled alike, so that they are as long as
    MNIST's on average.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.asarray(digits.data, np.float64)
    images *= np.sqrt(_MNIST_SQUARE / (images**2).sum(axis=1).mean())
    return np.hstack([images, np.ones((len(images), 1))]), np.asarray(digits.target, np.int64)


def softmax(logits: Floats) -> Floats:
    """Return the softmax over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return shares
