"""Simulation of fastest-k SGD in virtual time: Sections IV and V of Kas Hanna et al."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.theory.checks import Floats, Ints, check_numbers, check_time
from wagma.theory.fastest_k.adaptive import AdaptiveK

# Takes weights and the indices of workers; returns the mean of their gradients, and the error.
Loss = Callable[[Floats, Ints], tuple[Floats, float]]

_BLOCK = 1 << 16  # response times drawn at once


@dataclass(frozen=True)
class FastestKRun:
    """Result of a simulation, with one entry per iteration.

    Attributes:
        times: end of each iteration, from 0, float64: (steps,).
        ks: number of workers that it waited for, int64: (steps,).
        weights: weights after the last iteration, float64: (d,).
        errors: F(w) - F* after the iteration, float64: (steps,).
        downloads: gradients that the master has received so far, each a d-vector, int64: (steps,).
            An iteration receives k.
        uploads: parameters that the master has sent so far, each a d-vector, int64: (steps,). An
            iteration sends n.
    """

    times: Floats
    ks: Ints
    weights: Floats
    errors: Floats
    downloads: Ints
    uploads: Ints


def simulate(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    n: SupportsIndex,
    k: SupportsIndex,
    *,
    eta: float,
    steps: SupportsIndex,
    rng: np.random.Generator,
    step: SupportsIndex = 0,
    thresh: float = 0,
    burnin: float = 0,
    k_max: SupportsIndex | None = None,
) -> FastestKRun:
    """Simulate linear regression by fastest-k SGD, with a fixed k or an adaptive one (V-A).

    F(w) = 1/m sum_i (<x_i, w> - y_i)^2 / 2, from w = 0. Worker i has the rows i s to (i+1) s - 1,
    s = m / n, and its gradient is the mean over them (3). Response times are exp(1), drawn anew for
    every worker and iteration. F* is that of a solution by least squares.

    Args:
        X: data: (m, d).
        y: labels: (m,).
        n: number of workers, >= 1; m must be a multiple.
        k: workers that an iteration waits for, 1 to n; the first k if it is adaptive.
        eta: learning rate, > 0.
        steps: iterations, >= 1.
        rng: draws n response times for each iteration; the same state gives the same result.
        step: what the policy adds to k, >= 1 (`AdaptiveK`); 0: k is fixed.
        thresh: of the policy, >= 0.
        burnin: of the policy, >= 0.
        k_max: the policy's largest k, k to n; None: n.

    Raises:
        ValueError: an argument has a wrong value or shape, thresh, burnin or k_max is given for a
            fixed k, or the weights do not stay finite with this learning rate.
        TypeError: an argument is of a wrong type.
    """
    data, labels, workers = check_numbers("X", X), check_numbers("y", y), check_count("n", n, 1)
    if data.ndim != 2 or not data.size or len(data) % workers:
        raise ValueError(
            f"X has the shape {data.shape}: (m, d) is needed, with m a multiple of n = {workers}"
        )
    if labels.shape != data.shape[:1]:
        raise ValueError(f"y has the shape {labels.shape}: ({len(data)},) is needed, as X has rows")
    for name, values in (("X", data), ("y", labels)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has values that are not finite: leave these samples out")
    policy = None
    if check_count("step", step, 0):
        policy = AdaptiveK(k, workers, step, thresh, burnin, k_max)
    elif thresh != 0 or burnin != 0 or k_max is not None:
        raise ValueError("step is 0: k is fixed; leave thresh, burnin and k_max out, or give step")
    best = np.linalg.lstsq(data, labels, rcond=None)[0]
    triangle = np.linalg.qr(data, mode="r")  # |R v| = |X v|, with fewer rows
    shards, shard_labels = data.reshape(workers, -1, data.shape[1]), labels.reshape(workers, -1)

    def loss(weights: Floats, chosen: Ints) -> tuple[Floats, float]:
        rows = shards[chosen].reshape(-1, data.shape[1])
        gradient = (rows @ weights - shard_labels[chosen].ravel()) @ rows / len(rows)
        # At least squares F(w) - F* is |X (w - w*)|^2 / 2 m, without the rounding of a difference.
        off = triangle @ (weights - best)
        return gradient, float(off @ off) / (2 * len(data))

    return simulate_loss(
        loss, np.zeros(data.shape[1]), workers, k, eta=eta, steps=steps, rng=rng, policy=policy
    )


def simulate_loss(
    loss: Loss,
    weights: Floats,
    n: SupportsIndex,
    k: SupportsIndex,
    *,
    eta: float,
    steps: SupportsIndex,
    rng: np.random.Generator,
    policy: AdaptiveK | None = None,
    mean_time: float = 1.0,
) -> FastestKRun:
    """Simulate fastest-k SGD of any loss; `simulate` does so for linear regression.

    Args:
        loss: takes weights and the indices of k workers, (k,); returns the mean of their gradients,
            which has the shape of the weights, and the error at these weights.
        weights: of the beginning; they stay as they are.
        n: number of workers, >= 1.
        k: workers that an iteration waits for, 1 to n, unless there is a policy.
        eta: learning rate, > 0.
        steps: iterations, >= 1.
        rng: draws n response times for each iteration.
        policy: chooses k, as of its state; it is changed.
        mean_time: of a response, exponentially distributed, > 0.

    Raises:
        ValueError: an argument has a wrong value, or the weights do not stay finite.
        TypeError: an argument is of a wrong type.
    """
    workers, total = check_count("n", n, 1), check_count("steps", steps, 1)
    fixed, rate = check_count("k", k, 1, workers), check_time("eta", eta, positive=True)
    scale = check_time("mean_time", mean_time, positive=True)
    took, errors = np.empty(total), np.empty(total + 1)
    ks = np.empty(total, np.int64)
    rows, now = max(1, _BLOCK // workers), np.array(weights, np.float64)
    before = None
    for i in range(total):
        if i % rows == 0:
            responses = scale * rng.exponential(size=(min(rows, total - i), workers))
        ks[i] = fixed if policy is None else policy.k
        response = responses[i % rows]
        chosen = response.argsort(kind="stable")[: ks[i]]
        took[i] = response[chosen[-1]]
        gradient, errors[i] = loss(now, chosen)
        now = now - rate * gradient
        if not math.isfinite(errors[i]):
            raise ValueError(
                f"eta is {rate!r}: the weights are not finite after {i} iterations; take a smaller "
                "learning rate"
            )
        if policy is not None:
            policy.update(None if before is None else float(np.vdot(gradient, before)))
            before = gradient
    errors[total] = loss(now, np.arange(workers))[1]
    sent = workers * np.arange(1, total + 1)
    return FastestKRun(took.cumsum(), ks, now, errors[1:], ks.cumsum(), sent)
