"""Training on scikit-learn's digits by a cluster's clock: Figs. 5, 7 and 8.

Gradients are real, and so is the noise scale; only the time is simulated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wagma.reproduce.cannikin.simulated import Clock
from wagma.reproduce.digits import CLASSES, softmax
from wagma.theory.cannikin import NoiseScale, Planner, adascale, noise_scale
from wagma.theory.checks import Floats, Ints

HIDDEN = 64
FEWEST_STEPS = 3  # of an epoch: fewer measure too little
TEST_SHARE = 0.25


class Data(NamedTuple):
    """Images with a last column of 1, and their digits, (N,)."""

    images: Floats  # to train on, as they are and shifted by a pixel: (9, N, 65)
    labels: Ints  # their digits, (N,)
    test_images: Floats  # (M, 65)
    test_labels: Ints  # (M,)


class Curve(NamedTuple):
    """A run of training: what was reached after each step, and how each epoch was planned."""

    seconds: Floats  # by the cluster's clock, (steps,)
    accuracy: Floats  # on the images that are not trained on, (steps,)
    epoch: Ints  # that the step belongs to, counted from 0, (steps,)
    samples: Ints  # taken so far, (steps,)
    total_batch: list[int]  # of each epoch
    noise_scale: list[float]  # average after each epoch
    gain: list[float]  # by which the learning rate was multiplied in each epoch


def split(images: Floats, labels: Ints, rng: np.random.Generator) -> Data:
    """Return images to train on, and others to test; (N, 65) with (N,) digits."""
    order = rng.permutation(len(images))
    tested, trained = np.split(order, [round(TEST_SHARE * len(order))])
    padded = np.pad(images[trained, :-1].reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    ones = images[trained, -1:]
    shifted = [
        np.hstack([padded[:, y : y + 8, x : x + 8].reshape(-1, 64), ones])
        for y in range(3)
        for x in range(3)
    ]
    return Data(np.array(shifted), labels[trained], images[tested], labels[tested])


def train(
    planner: Planner,
    clock: Clock,
    data: Data,
    rng: np.random.Generator,
    *,
    rate: float,
    seconds: float,
    target: float = 1.0,
) -> Curve:
    """Train until the clock shows so many seconds, or a little beyond a target.

    Each node computes the gradient of its own samples; the learning rate is multiplied by
    AdaScale's gain.

    Args:
        planner: of the batches.
        clock: of the cluster.
        data: to train on, and to test.
        rng: of the first weights and of the order of the samples.
        rate: learning rate with the smallest total batch.
        seconds: to train, at least.
        target: mean accuracy over an epoch with which the training ends sooner.
    """
    network = Network(data.images.shape[2], HIDDEN, rng)
    order = _shuffled(len(data.labels), rng)
    plan, now, drawn = planner.first(), 0.0, 0
    rows: list[tuple[float, float, int, int]] = []
    totals: list[int] = []
    scales: list[float] = []
    gains: list[float] = []
    while now < seconds:
        total = plan.total_batch
        gain = 1.0
        if total > planner.smallest:
            gain = adascale(total, planner.noise.average.scale, planner.smallest)
        epoch = clock.epoch(plan.batches, max(FEWEST_STEPS, round(len(data.labels) / total)))
        noise, reached = [], []
        for took in epoch.seconds.tolist():
            chosen = np.fromiter(order, np.int64, total)
            images = data.images[rng.integers(len(data.images), size=total), chosen]
            gradient = network.gradient(images, data.labels[chosen], plan.batches)
            network.step(gradient, gain * rate)
            estimate = noise_scale(plan.batches, gradient.local_sqnorms, gradient.sqnorm)
            noise.append((estimate.sqnorm, estimate.trace))
            now, drawn = now + took, drawn + total
            reached.append(network.accuracy(data.test_images, data.test_labels))
            rows.append((now, reached[-1], len(totals), drawn))
        totals.append(total)
        gains.append(gain)
        plan = planner.next(
            replace(epoch.measured, noise=NoiseScale(*np.mean(noise, axis=0).tolist()))
        )
        scales.append(planner.noise.average.scale)
        if np.mean(reached) >= target:
            break
    times, accuracy, epochs, samples = (np.array(column) for column in zip(*rows, strict=True))
    return Curve(times, accuracy, epochs, samples, totals, scales, gains)


def _shuffled(count: int, rng: np.random.Generator) -> Iterator[int]:
    """Yield samples, each once before any comes again, in a new order every time."""
    while True:
        yield from rng.permutation(count).tolist()


class Gradient(NamedTuple):
    """The gradient of a total batch that nodes have divided."""

    mean: list[Floats]  # over all samples, one array for each weight matrix: sum_i (b_i / B) g_i
    local_sqnorms: list[float]  # |g_i|^2 of each node: (n,)
    sqnorm: float  # |g|^2 of the mean


class Network:
    """One hidden layer of rectifiers, softmax and cross-entropy; the last of its inputs is 1."""

    def __init__(self, inputs: int, hidden: int, rng: np.random.Generator) -> None:
        self.weights: list[Floats] = [
            rng.normal(scale=np.sqrt(2 / inputs), size=(inputs, hidden)),
            rng.normal(scale=np.sqrt(2 / hidden), size=(hidden + 1, CLASSES)),
        ]

    def gradient(self, images: Floats, labels: Ints, batches: Sequence[int]) -> Gradient:
        """Return the gradient of the mean loss of (B, inputs) images, from those of nodes.

        Node i has `batches[i]` of them, one at least; their sum is B.
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
