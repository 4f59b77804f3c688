"""Numeric expected maxima of sums: the time of the slowest of N workers for M micro-batches.

Pure; times in the unit of the distribution. It needs numpy alone; distributions are scipy's.
"""

import math

import numpy as np

from wagma.theory.checks import Floats
from wagma.theory.distributions import Distribution

# The grid's step moves the result by at most half of this share of the mean of a term.
_RESOLUTION = 1e-3
_FEWEST, _MOST = 1 << 17, 1 << 23  # cells of the grid
# Largest part of the expectation, approximately, that comes from the approximation of the tail.
_TAIL = 1e-3
_BELOW = 1e-7  # the share of a term's distribution below the grid, if it is unbounded there
_NODES = 64  # of Gauss and Laguerre's quadrature


def expected_maximum(
    distribution: Distribution, terms: int, count: int, base: float = 0.0
) -> float:
    """Return E[max of `count` sums], each of `terms` independent values of base + distribution.

    The distribution of a sum is found by FFT on a grid, E[max] = int (1 - F^count), and the tail
    beyond the grid is approximated by one large term. The relative error is below 1e-3.

    Args:
        distribution: of a term; it may be discrete, and heavy-tailed if its mean is finite.
        terms: of each sum, >= 1.
        count: sums, >= 1.
        base: constant part of each term.

    Raises:
        ValueError: the mean of a term is not finite or not positive, or the tail is too heavy.
    """
    mean = float(distribution.mean())
    term = base + mean
    if not (math.isfinite(term) and term > 0):
        raise ValueError(
            f"the mean of a term is {term!r} (base {base!r}, mean of the distribution {mean!r}): "
            "give a distribution and a base whose sum has a finite mean above 0"
        )
    lowest, highest = (float(end) for end in distribution.support())
    if lowest == -math.inf:
        lowest = float(distribution.ppf(_BELOW))
    large = _large_value(distribution, terms * count, _TAIL * terms * term)
    spread = float(distribution.std())
    scatter = 12 * math.sqrt(terms) * spread if math.isfinite(spread) else 0.0
    reach = terms * (mean - lowest) + max(large - lowest, scatter)
    reach = min(reach, terms * (highest - lowest))
    cells = max(_FEWEST, 2 + math.ceil(reach / (_RESOLUTION * term)))
    if cells > _MOST:
        raise ValueError(
            f"distribution has too heavy a tail: {cells:,} cells would be needed, {_MOST:,} are "
            "possible; cut it off, for example where a time limit would"
        )
    step = max(reach, term * _RESOLUTION) / (cells - 2)
    edges = lowest + (np.arange(cells + 1) - 0.5) * step
    edges[0] = -math.inf
    below = np.clip(np.cumsum(_sum_of(np.diff(distribution.cdf(edges)), terms)), 0.0, 1.0)
    beyond = float(1 - below[-1])
    inside = step * float(np.sum(1 - below**count))
    rest = count * beyond * _mean_excess(distribution, lowest + reach - (terms - 1) * mean)
    return terms * (base + lowest) + inside + rest


def _sum_of(masses: Floats, terms: int) -> Floats:
    """Return the masses of the sum of `terms` values, on the same grid; what lies beyond is cut.

    Values count from the grid's first cell, so that none beyond the grid comes back by adding.
    """
    cells = len(masses)
    result: Floats | None = None
    while True:
        if terms & 1:
            result = masses if result is None else _convolved(result, masses, cells)
        terms >>= 1
        if not terms:
            assert result is not None
            return result
        masses = _convolved(masses, masses, cells)


def _convolved(a: Floats, b: Floats, cells: int) -> Floats:
    length = 1 << (2 * cells - 1).bit_length()
    product = np.fft.rfft(a, length) * np.fft.rfft(b, length)
    return np.fft.irfft(product, length)[:cells]


def _large_value(distribution: Distribution, values: int, tolerance: float) -> float:
    """Return where E[(X - x)+] of so many values together is below the tolerance."""
    for power in range(2, 300):
        value = float(distribution.isf(10.0**-power))
        if not math.isfinite(value):
            break
        if values * _mean_excess(distribution, value) * float(distribution.sf(value)) <= tolerance:
            return value
    raise ValueError(
        "distribution has too heavy a tail: its mean is that of values that never come; cut it off"
    )


def _mean_excess(distribution: Distribution, value: float) -> float:
    """Return E[X - value | X > value]; 0 where X is never above it."""
    above = float(distribution.sf(value))
    if above <= 0:
        return 0.0
    # E[(X - value)+] = int_0^above (isf(p) - value) dp with p = above exp(-u).
    nodes, weights = np.polynomial.laguerre.laggauss(_NODES)
    shares = np.maximum(above * np.exp(-nodes), np.finfo(float).tiny)
    places = distribution.isf(shares)
    # Some isf are infinite where 1 - p is 1 by rounding, which carries no weight.
    return float(weights @ np.maximum(np.where(np.isfinite(places), places, value) - value, 0.0))
