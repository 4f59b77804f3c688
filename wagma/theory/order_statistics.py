"""Expected order statistics of compute times: the time of the k fastest of n. Pure.

scipy is imported where it is used: for exponential times of a known mean nothing is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.theory.checks import Floats, check_time
from wagma.theory.distributions import Distribution, check_distribution, parameters
from wagma.theory.scipy_needed import scipy

_ACCURACY = 1e-8  # relative, of a numeric expectation
_FARTHEST = 690.0  # of log odds: exp(-690) is about the smallest float
_MOST_VALUES = 10_000_000  # of a discrete distribution
_BEYOND = 1e-30  # the probability of values that are left out of an unbounded discrete distribution
_INTERVALS = 10_000  # of the adaptive integral


def exponential_mean(mean: float, k: SupportsIndex, n: SupportsIndex) -> float:
    """Return E[X_(k)] of n exponential times: mean (H_n - H_{n-k}).

    This is the time of an update where the late stop computing at once (K-sync, fastest-k). Where
    they first compute to the end, as in `wagma.theory.replay`, an update takes longer.

    Args:
        mean: mean of a time, >= 0.
        k: which of the ordered times, 1 (the fastest) to n.
        n: number of times, >= 1.
    """
    scale, count = check_time("mean", mean), check_count("n", n, 1)
    return scale * sum(1 / (count - i) for i in range(check_count("k", k, 1, count)))


def order_statistic_mean(distribution: Distribution, k: SupportsIndex, n: SupportsIndex) -> float:
    """Return E[X_(k)], the mean of the k-th smallest of n independent values (X_{K:P}).

    Exact for exponential, shifted exponential and Pareto distributions (Dutta et al., 2018, 4.1);
    any other one is integrated or, if it is discrete, summed to a relative accuracy of 1e-8.

    Args:
        distribution: a frozen distribution of scipy.stats, continuous or discrete.
        k: which of the ordered values, 1 (the smallest) to n.
        n: number of values, >= 1.

    Returns:
        The mean, in the unit of the distribution.

    Raises:
        ValueError: a count is out of its range, or the mean is not finite or not to be had to
            1e-8, as the tail is too heavy.
        TypeError: a count is no integer, or the distribution is none.
        ImportError: scipy is not installed.
    """
    count = check_count("n", n, 1)
    rank = check_count("k", k, 1, count)
    return float(order_statistic_means(distribution, np.array([rank]), count)[0])


def order_statistic_means(distribution: Distribution, ks: npt.NDArray[Any], n: int) -> Floats:
    """Return the means of `order_statistic_mean` for several k at once, which costs less."""
    check_distribution(distribution)
    stats = scipy("stats")
    if (given := parameters(distribution, stats.expon)) is not None:
        means = [given["loc"] + exponential_mean(given["scale"], k, n) for k in ks.tolist()]
        return np.array(means)
    if (given := parameters(distribution, stats.pareto)) is not None:
        return given["loc"] + given["scale"] * _pareto(given["b"], ks, n)
    if isinstance(getattr(distribution, "dist", None), stats.rv_discrete):
        return _summed(distribution, ks, n)
    return _integrated(distribution, ks, n)


def _pareto(shape: float, ks: npt.NDArray[Any], n: int) -> Floats:
    """Return Gamma(n+1) Gamma(n-k+1-1/a) / (Gamma(n-k+1) Gamma(n+1-1/a)), the scale is 1."""
    gammaln = scipy("special").gammaln
    above, inverse = n - ks + 1, 1 / shape
    if (infinite := ks[above <= inverse]).size:
        raise ValueError(
            f"E[X_({infinite[0]})] of {n} values is not finite: the distribution has the shape "
            f"{shape!r}, more than {1 / (n - infinite[0] + 1):g} is needed"
        )
    log = gammaln(n + 1) + gammaln(above - inverse) - gammaln(above) - gammaln(n + 1 - inverse)
    means: Floats = np.exp(log)
    return means


def _summed(distribution: Any, ks: npt.NDArray[Any], n: int) -> Floats:
    """Return the means of a discrete distribution: the sum of its steps times Pr(X_(k) > x)."""
    betainc = scipy("special").betainc
    values = getattr(distribution.dist, "xk", None)
    if values is None:
        lowest, highest = (float(end) for end in distribution.support())
        middle = float(distribution.ppf(0.5))
        # isf of some is infinite where 1 - p is 1 by rounding: sf and cdf are not.
        reaches = 2.0 ** np.arange(_MOST_VALUES.bit_length())
        right, left = middle + reaches, middle - reaches
        highest = min([highest, *right[distribution.sf(right) <= _BEYOND]])
        lowest = max([lowest, *left[distribution.cdf(left) <= _BEYOND]])
        if not highest - lowest < 2 * _MOST_VALUES:
            raise ValueError(_too_heavy(ks, n))
        values = np.arange(lowest, highest + 1)
    else:
        given = parameters(distribution, distribution.dist) or {}
        values = np.unique(values) + given.get("loc", 0.0)
    above = distribution.sf(values[:-1])
    steps = np.diff(values)
    means: Floats = np.array([steps @ betainc(n - k + 1, k, above) for k in ks.tolist()])
    return np.asarray(values[0] + means)


def _integrated(distribution: Distribution, ks: npt.NDArray[Any], n: int) -> Floats:
    """Return the means of a continuous distribution by adaptive quadrature over the log odds.

    E[X_(k)] = int x(z) p^k (1-p)^(n-k+1) / B(k, n-k+1) dz with p = 1 / (1 + exp(-z)), the
    probability of a value below x(z). This is smooth in z where the quantiles are, and falls at
    least as exp(-delta |z|) where the mean is finite.
    """
    special, quad_vec = scipy("special"), scipy("integrate").quad_vec
    logs = special.betaln(ks, n - ks + 1)

    def moments(z: float) -> Floats:
        """Return the integrands, and their absolute values."""
        x = distribution.ppf(special.expit(z)) if z < 0 else distribution.isf(special.expit(-z))
        weights = np.exp(ks * special.log_expit(z) + (n - ks + 1) * special.log_expit(-z) - logs)
        values = float(x) * weights
        return np.concatenate([values, np.abs(values)])

    places = np.array(list(_places(ks, n)))
    largest = np.max([moments(z) for z in places], axis=0)[len(ks) :]
    ends = [_end(moments, largest, sign) for sign in (-1.0, 1.0)]
    if None in ends:
        raise ValueError(_too_heavy(ks, n))
    low, high = ends
    found, error, *_ = quad_vec(
        moments,
        low,
        high,
        points=np.unique(places[(places > low) & (places < high)]),
        epsabs=0.0,
        epsrel=1e-12,
        limit=_INTERVALS,
    )
    means, sizes = found[: len(ks)], found[len(ks) :]
    if not error <= _ACCURACY * sizes.min():  # NaN, too
        raise ValueError(
            f"E[X_(k)] of {n} values could not be integrated to {_ACCURACY:g} (error {error:g}): "
            "quantiles of the distribution are not finite, or not continuous enough"
        )
    return np.asarray(means, np.float64)


def _places(ks: npt.NDArray[Any], n: int) -> Iterator[float]:
    """Yield log odds that separate the intervals: a coarse grid, and where the weights are."""
    yield from (-40.0, -20.0, -10.0, -5.0, -2.0, 0.0, 2.0, 5.0, 10.0, 20.0, 40.0)
    # More than a few hundred weights overlap so much that some of them serve for all.
    for k in ks[:: max(1, len(ks) // 300)].tolist():
        centre, width = math.log(k / (n - k + 1)), math.sqrt(1 / k + 1 / (n - k + 1))
        yield from (centre + width * i for i in (-8, -3, 0, 3, 8))


def _end(moments: Any, largest: Floats, sign: float) -> float | None:
    """Return the log odds beyond which the integrals are negligible; None: there are none."""
    nearer, before = sign * 20.0, moments(sign * 20.0)[len(largest) :]
    for distance in (45.0, 90.0, 180.0, 360.0, _FARTHEST):
        end = sign * distance
        values = moments(end)[len(largest) :]
        # What is left beyond falls as exp(-delta |z|), if it does fall.
        with np.errstate(divide="ignore", invalid="ignore"):
            delta = np.log(before / values) / abs(end - nearer)
            rest = np.where(values > 0, values / delta, 0.0)
        if np.all((rest >= 0) & (rest <= 1e-3 * _ACCURACY * largest)):
            return end
        nearer, before = end, values
    return None


def _too_heavy(ks: npt.NDArray[Any], n: int) -> str:
    which = f"k = {ks[0]}" if len(ks) == 1 else f"k = {ks[0]} to {ks[-1]}"
    return (
        f"E[X_(k)], {which}, of {n} values is not finite, or not to be had to {_ACCURACY:g}: the "
        "tail of the distribution is too heavy; cut it off, for example where a time limit would"
    )
