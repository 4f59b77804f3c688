"""Time per update, by formula or simulation: Theorems 1 and 2, Lemmas 4 to 6. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, SupportsIndex

import numpy as np

from wagma.inject.checks import check_count
from wagma.theory.checks import Floats
from wagma.theory.distributions import Distribution, check_times, parameters
from wagma.theory.ksync.methods import check_learners, check_method
from wagma.theory.ksync.simulation import Draws, asynchronous, synchronous
from wagma.theory.order_statistics import exponential_mean, order_statistic_mean
from wagma.theory.scipy_needed import scipy

Kind = Literal["exact", "upper bound", "simulated"]

_SEED = 1803
_FEWEST, _MOST = 20_000, 2_000_000  # updates of a simulation
_WARM_UP = 0.1  # the share of the updates before the steady state
_BATCHES = 30  # batches whose means give the error of a simulation
_ACCURACY = 0.01


@dataclass(frozen=True)
class UpdateTime:
    """Time of an update.

    Attributes:
        mean: long-run average, in the unit of the distribution.
        kind: "exact"; "upper bound"; "simulated": with a fixed seed, to 1 % (three standard
            errors).
    """

    mean: float
    kind: Kind


def update_time(
    method: str, distribution: Distribution, learners: SupportsIndex, k: SupportsIndex
) -> UpdateTime:
    """Return the mean time of an update where communication takes no time.

    - k-sync: E[X_{K:P}] (Lemma 4), exact.
    - k-batch-sync: exponential times: K E[X] / P, exact; others, which the paper calls not
      tractable, are simulated.
    - k-async: exponential times: E[X_{K:P}], exact; shifted exponential times: E[X_{K:P}] as an
      upper bound (Lemma 6: they are new-longer-than-used); others are simulated. The bound is far
      off where K is small: for K = 1 an update takes E[X] / P, as that of k-batch-async does.
    - k-batch-async: K E[X] / P (Lemma 5), exact.

    Equal arguments give equal results: simulations draw from a fixed seed. A simulation takes less
    than a second, with a tail heavier than that of Pareto(2, 1) up to half a minute.

    Args:
        method: one of `METHODS`.
        distribution: of the time of a mini-batch, >= 0: a frozen distribution of scipy.stats.
        learners: P, >= 1.
        k: K, 1 to P.

    Raises:
        ValueError: a value is out of its range, a mean is not finite, or a simulation does not
            reach 1 %.
        TypeError: an argument is of a wrong type.
        ImportError: scipy is not installed.
    """
    count, least = check_learners(learners, k)
    exponential, shift = _exponential(distribution)
    check_times(distribution, mean=check_method(method) != "k-sync")
    if method == "k-sync":
        return UpdateTime(order_statistic_mean(distribution, least, count), "exact")
    mean = float(distribution.mean())
    if method == "k-batch-async" or (method == "k-batch-sync" and exponential and not shift):
        return UpdateTime(least * mean / count, "exact")
    if method == "k-async" and exponential:
        bound = shift + exponential_mean(mean - shift, least, count)
        return UpdateTime(bound, "upper bound" if shift else "exact")
    return UpdateTime(_simulated(method, distribution, count, least), "simulated")


def speedup_async_over_sync(distribution: Distribution, learners: SupportsIndex) -> float:
    """Return the time of a synchronous update over that of an asynchronous one: Theorem 1.

    P E[X_{P:P}] / E[X]; P H_P for exponential times.

    Args:
        distribution: of the time of a mini-batch, >= 0: a frozen distribution of scipy.stats.
        learners: P, >= 1.

    Raises:
        ValueError: a value is out of its range, or a mean is not finite.
        TypeError: an argument is of a wrong type.
        ImportError: scipy is not installed.
    """
    count = check_count("learners", learners, 1)
    check_times(distribution, mean=True)
    slowest = order_statistic_mean(distribution, count, count)
    return count * slowest / float(distribution.mean())


def _exponential(distribution: Distribution) -> tuple[bool, float]:
    """Return whether times are exponential, and by how much they are shifted."""
    given = parameters(distribution, scipy("stats").expon)
    return given is not None, given["loc"] if given else 0.0


def _simulated(method: str, distribution: Distribution, learners: int, k: int) -> float:
    """Return the simulated mean time of an update, from as many updates as its error needs.

    Two reductions of the variance avoid millions of updates for heavy tails such as Pareto(2, 1).
    In K-async all learners compute or wait, so that an update takes K (E[X] + E[waiting]) / P: only
    the waiting is simulated. A control variate removes the effect of compute times that happened to
    be above or below their mean.
    """
    updates, average = _FEWEST, float(distribution.mean())
    while True:
        draws = Draws(distribution, np.random.default_rng(_SEED))
        if method == "k-async":
            _, _, waiting = asynchronous(draws, learners, k, updates)
            took = k * (average + waiting.mean(axis=1)) / learners
        else:
            took = np.diff(synchronous(draws, learners, k, updates, k), prepend=0.0)
        mean, error = _controlled(_batches(took), _batches(draws.means(updates)) - average)
        if 3 * error <= _ACCURACY * mean:
            return mean
        if updates >= _MOST:
            raise ValueError(
                f"distribution has too heavy a tail: {updates:,} updates give the time of one to "
                f"{3 * error / mean:.1%}, {_ACCURACY:.0%} is needed; cut it off, for example where "
                "a time limit would"
            )
        updates = min(_MOST, 4 * updates)


def _batches(values: Floats) -> Floats:
    """Return the means of successive parts of the values, without the first ones: (_BATCHES,)."""
    steady = values[int(_WARM_UP * len(values)) :]
    return np.array([part.mean() for part in np.array_split(steady, _BATCHES)])


def _controlled(values: Floats, excess: Floats) -> tuple[float, float]:
    """Return the mean of `values` and its standard error, with `excess` as control variate."""
    apart = excess - excess.mean()
    spread = float(apart @ apart)
    slope = float(apart @ values) / spread if spread > 0 else 0.0
    without = values - slope * excess
    return float(without.mean()), float(without.std(ddof=2)) / math.sqrt(len(values))
