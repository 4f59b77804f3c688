"""Error over time, and when to raise k: Lemma 1 and Theorem 1 of Kas Hanna et al. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.theory.checks import Floats, check_numbers, check_passed, shaped
from wagma.theory.convergence import Descent
from wagma.theory.distributions import Distribution, check_times
from wagma.theory.order_statistics import order_statistic_means
from wagma.theory.scipy_needed import scipy


def mean_times(n: SupportsIndex, distribution: Distribution) -> Floats:
    """Return E[X_(k)] for k = 1 to n: how long an iteration takes that waits for the fastest k.

    Exponential response times: the sum of 1/i, i = n-k+1 to n, times their mean (7). Others as in
    `wagma.theory.ksync.order_statistic_mean`.

    Args:
        n: number of workers, >= 1.
        distribution: of a response time, >= 0: a frozen distribution of scipy.stats.

    Returns:
        The mean times, in the unit of the distribution: (n,).

    Raises:
        ValueError: n is below 1, times are negative, or one of the means is not finite.
        TypeError: n is no integer, or the distribution is none.
        ImportError: scipy is not installed.
    """
    workers = check_count("n", n, 1)
    check_times(distribution)
    return order_statistic_means(distribution, np.arange(1, workers + 1), workers)


def error_bound(
    t: npt.ArrayLike,
    k: SupportsIndex,
    *,
    eta: float,
    L: float,
    sigma2: float,
    c: float,
    s: SupportsIndex,
    gap: float,
    mean_times: npt.ArrayLike,
) -> float | Floats:
    """Return the bound on E[F(w_t)] - F* after the time t with a fixed k: Lemma 1.

    floor + (1 - eta c)^(t / mu_k) (gap - floor), floor = eta L sigma^2 / (2 c k s), without the
    paper's epsilon. The number of iterations, t / mu_k, is not rounded.

    Args:
        t: time from the start, >= 0: a number or an array.
        k: workers that an iteration waits for, 1 to n.
        eta: learning rate, > 0, eta c < 1; the bound holds for at most
            1 / (2 L (M_G / (k s) + 1)), where M_G bounds how the variance grows with the gradient.
        L: Lipschitz constant of the gradient, > 0.
        sigma2: sigma^2, bound on the variance of the gradient of one sample, >= 0.
        c: parameter of strong convexity, > 0 and at most L.
        s: samples of a worker, >= 1.
        gap: F(w_0) - F*, >= 0.
        mean_times: mu, of `mean_times`, in the unit of `t`: (n,).

    Returns:
        The bound, in the shape of `t`.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is no number.
    """
    descent, mu = Descent(eta, L, sigma2, c, gap), _times(mean_times)
    waits, times = check_count("k", k, 1, len(mu)), check_passed("t", t)
    return shaped(descent.error(times / mu[waits - 1], waits * check_count("s", s, 1)))


def fixed_k_crossings(
    *,
    eta: float,
    L: float,
    sigma2: float,
    c: float,
    s: SupportsIndex,
    gap: float,
    mean_times: npt.ArrayLike,
) -> Floats:
    """Return the times from which on k + 1 has a lower bound than k, k = 1 to n - 1.

    Both are fixed from the start. 0: k + 1 is better from the start on. math.inf: k is never worse,
    as without variance.

    Args: as in `error_bound`.

    Returns:
        The times, in the unit of `mean_times`: (n - 1,).

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is no number.
        ImportError: scipy is not installed.
    """
    descent, mu = Descent(eta, L, sigma2, c, gap), _times(mean_times)
    floors = _floors(descent, check_count("s", s, 1), len(mu))
    rates = -math.log1p(-descent.eta * descent.c) / mu
    return np.array([_crossing(descent.gap, floors, rates, k) for k in range(len(mu) - 1)])


def _crossing(gap: float, floors: Floats, rates: Floats, k: int) -> float:
    """Return where k's bound (an index from 0) rises above that of the next one."""
    lower, above = floors[k] - floors[k + 1], gap - floors[k : k + 2]
    if lower <= 0:
        return 0.0 if rates[k] == rates[k + 1] else math.inf
    slopes = above * rates[k : k + 2]
    if slopes[0] <= slopes[1]:
        return 0.0

    def lead(t: float) -> float:
        """Return how much higher the bound of k is; it falls first, then rises, once."""
        first, second = above * np.exp(-rates[k : k + 2] * t)
        return float(lower + first - second)

    # The lead is negative until this time, where it begins to rise, and for some time after.
    low = math.log(slopes[0] / slopes[1]) / (rates[k] - rates[k + 1])
    high = 2 * low
    while lead(high) <= 0:
        high *= 2
    brentq: Callable[..., float] = scipy("optimize").brentq
    return float(brentq(lead, low, high, xtol=1e-12 * high, rtol=1e-12))


def switch_times(
    *,
    eta: float,
    L: float,
    sigma2: float,
    c: float,
    s: SupportsIndex,
    gap: float,
    mean_times: npt.ArrayLike,
) -> Floats:
    """Return when the bound-optimal policy goes on from k to k + 1, k = 1 to n - 1: Theorem 1.

    t_k = t_{k-1} + mu_k / (-ln(1 - eta c)) [ln(mu_{k+1} - mu_k) - ln(eta L sigma^2 mu_k)
          + ln(2 c k (k+1) s e(t_{k-1}) - eta L (k+1) sigma^2)], t_0 = 0,

    where e(t) is the bound that the policy has reached: Lemma 1 with k from e(t_{k-1}) on. At t_k
    the bound of k + 1 begins to fall faster than that of k. Where that is so from the start, k is
    left at once: t_k = t_{k-1}. math.inf: k is never left, as without variance.

    The paper prints 589 for Example 1's first switch; this, and so Theorem 1 as printed, gives
    496.9.

    Args: as in `error_bound`.

    Returns:
        The times, in the unit of `mean_times`, never decreasing: (n - 1,).

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is no number.
    """
    descent, mu = Descent(eta, L, sigma2, c, gap), _times(mean_times)
    floors = _floors(descent, check_count("s", s, 1), len(mu))
    decay = -math.log1p(-descent.eta * descent.c)
    times, now, error = np.empty(len(mu) - 1), 0.0, descent.gap
    for k, slower in enumerate(np.diff(mu)):
        # Theorem 1 in other words: k is left where its error is so far above its floor.
        least = mu[k] * (floors[k] - floors[k + 1]) / slower if slower > 0 else math.inf
        above = error - floors[k]
        if above > least:
            waited = mu[k] / decay * math.log(above / least) if least > 0 else math.inf
            now, error = now + waited, floors[k] + least
        times[k] = now
    return times


def _floors(descent: Descent, samples: int, workers: int) -> Floats:
    return np.array([descent.floor(k * samples) for k in range(1, workers + 1)])


def _times(mean_times: npt.ArrayLike) -> Floats:
    """Return mean times, checked: above 0, finite and never decreasing."""
    mu = check_numbers("mean_times", mean_times)
    if mu.ndim != 1 or not mu.size:
        raise ValueError(
            f"mean_times has the shape {mu.shape}: (n,) is needed, what mean_times() returns"
        )
    if not (np.isfinite(mu).all() and mu[0] > 0 and (np.diff(mu) >= 0).all()):
        raise ValueError(
            f"mean_times is {mu.tolist()!r}: finite times above 0 are needed, none below the one "
            "before, as mean_times() returns them"
        )
    return mu
