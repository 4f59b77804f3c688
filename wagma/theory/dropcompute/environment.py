"""The environment of the paper's experiments: its delays, and the possible gain. Pure."""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np

from wagma.inject.checks import check_count
from wagma.inject.draws import bounded_lognormal
from wagma.theory.checks import Floats, check_time, check_workers
from wagma.theory.distributions import Distribution
from wagma.theory.maxima import expected_maximum


def slowdown_ratio(
    distribution: Distribution,
    micro_batches: SupportsIndex,
    workers: SupportsIndex,
    base: float = 0.0,
) -> float:
    """Return E[T] / E[T_i]: how much longer a step takes than the worker's own computing.

    It is the paper's indicator of what DropCompute can gain (C.3, Figs. 13 and 14): 1 where nothing
    varies. Computed from the distribution's CDF, without drawing and without the normal
    approximation of (4), to 1e-3.

    Args:
        distribution: of the noise that each micro-batch adds: a frozen distribution of scipy.stats,
            continuous or discrete, such as ``lognorm(0.83, scale=exp(-1.84))``.
        micro_batches: M, >= 1.
        workers: N, >= 2.
        base: time of a micro-batch without noise, >= 0, in the unit of the distribution.

    Raises:
        ValueError: a micro-batch takes no finite time > 0 on average, or the tail of the
            distribution is too heavy for this precision.
    """
    count, size = check_count("micro_batches", micro_batches, 1), check_workers(workers)
    constant = check_time("base", base)
    slowest = expected_maximum(distribution, count, size, constant)
    return slowest / (count * (constant + float(distribution.mean())))


def delays(mean: float, size: int | tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Return the delays of the paper's simulated environment (B.1), one for each micro-batch.

    mean * min(Z / (2 exp(4.5)), 5.5) with Z of LogNormal(4, 1). A micro-batch of time `mean` takes
    1.5 times as long on average with its delay, and at most 6.5 times.

    Args:
        mean: time of a micro-batch without delay, >= 0.
        size: shape of the result.
        rng: what draws.

    Returns:
        The delays, in the unit of `mean`, float64, of the shape `size`.
    """
    return check_time("mean", mean) * bounded_lognormal(rng.standard_normal(size))
