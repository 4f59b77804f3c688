"""Step times, finished micro-batches, speed-ups and the best threshold, by formula. Pure."""

from __future__ import annotations

import math
from typing import SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.theory.checks import Floats, check_numbers, check_time, check_workers, shaped
from wagma.theory.scipy_needed import scipy

# Relative difference below which speed-ups are equal, because of rounding.
EQUAL = 1e-9


def expected_step_time(
    mu: float, sigma: float, micro_batches: SupportsIndex, workers: SupportsIndex
) -> float:
    """Return E[T], the time in which the slowest worker computes its step: (4), without T^c.

    E[T] ~= sqrt(M) sigma ((1 - g) Phi^-1(1 - 1/N) + g Phi^-1(1 - 1/(e N))) + M mu, g = 0.5772...

    This approximates the maximum of N normal sums, to 0.05 sqrt(M) sigma. It is too low where times
    have a heavier tail: `slowdown_ratio` makes no such assumption.

    Args:
        mu: mean time of a micro-batch, > 0.
        sigma: standard deviation of the time of a micro-batch, >= 0.
        micro_batches: M, >= 1.
        workers: N, >= 2.
    """
    ndtri = scipy("special").ndtri
    mean, deviation, count = _statistics(mu, sigma, micro_batches)
    size = check_workers(workers)
    normal = (1 - np.euler_gamma) * ndtri(1 - 1 / size)
    normal += np.euler_gamma * ndtri(1 - 1 / (math.e * size))
    return float(math.sqrt(count) * deviation * normal + count * mean)


@overload
def expected_completed(
    mu: float, sigma: float, micro_batches: SupportsIndex, threshold: float
) -> float: ...
@overload
def expected_completed(
    mu: float, sigma: float, micro_batches: SupportsIndex, threshold: npt.ArrayLike
) -> float | Floats: ...
def expected_completed(
    mu: float, sigma: float, micro_batches: SupportsIndex, threshold: npt.ArrayLike
) -> float | Floats:
    """Return E[Mtilde], the micro-batches that a worker finishes before the threshold: (5).

    E[Mtilde] ~= sum_{m=1..M} Phi((tau - m mu) / (sqrt(m) sigma))

    Args:
        mu: mean time of a micro-batch, > 0.
        sigma: standard deviation of the time of a micro-batch, >= 0.
        micro_batches: M, >= 1.
        threshold: tau, > 0, a number or an array; math.inf drops nothing.

    Returns:
        The expected number, 0 to M; of the shape of `threshold`.
    """
    mean, deviation, count = _statistics(mu, sigma, micro_batches)
    return shaped(_completed(mean, deviation, count, check_thresholds("threshold", threshold)))


@overload
def effective_speedup(
    threshold: float,
    mu: float,
    sigma: float,
    micro_batches: SupportsIndex,
    workers: SupportsIndex,
    comm_time: float = ...,
    step_time: float | None = ...,
) -> float: ...
@overload
def effective_speedup(
    threshold: npt.ArrayLike,
    mu: float,
    sigma: float,
    micro_batches: SupportsIndex,
    workers: SupportsIndex,
    comm_time: float = ...,
    step_time: float | None = ...,
) -> float | Floats: ...
def effective_speedup(
    threshold: npt.ArrayLike,
    mu: float,
    sigma: float,
    micro_batches: SupportsIndex,
    workers: SupportsIndex,
    comm_time: float = 0.0,
    step_time: float | None = None,
) -> float | Floats:
    """Return E[S_eff], the throughput with the threshold over that without: (6) and (11).

    E[S_eff] ~= E[Mtilde] / M * (E[T] + T^c) / (min(tau, E[T]) + T^c)

    Args:
        threshold: tau, > 0, a number or an array; math.inf gives 1.
        mu: mean time of a micro-batch, > 0.
        sigma: standard deviation of the time of a micro-batch, >= 0.
        micro_batches: M, >= 1.
        workers: N, >= 2.
        comm_time: T^c, what communication adds to each step, >= 0.
        step_time: E[T] as measured, > 0, without T^c: the paper's "analytical given E[T]", for
            times that are not normal. None: (4).

    Returns:
        A factor, > 1 where the threshold gains; of the shape of `threshold`.
    """
    mean, deviation, count = _statistics(mu, sigma, micro_batches)
    taus = check_thresholds("threshold", threshold)
    communication = check_time("comm_time", comm_time)
    step = expected_step_time(mean, deviation, count, workers)
    if step_time is not None:
        step = check_time("step_time", step_time, positive=True)
    shares = _completed(mean, deviation, count, taus) / count
    return shaped(_speedup(taus, shares, step, communication))


def optimal_threshold(
    mu: float,
    sigma: float,
    micro_batches: SupportsIndex,
    workers: SupportsIndex,
    comm_time: float = 0.0,
) -> float:
    """Return the threshold with the largest speed-up of (11), or math.inf where none is above 1.

    There may be a local maximum after the end of each micro-batch: all are compared. Thresholds
    below M mu / 2 are not, which (5) presumes (assumption C.3): there its normal times are negative
    too often, and its rate is infinite at 0.

    Args:
        mu: mean time of a micro-batch, > 0.
        sigma: standard deviation of the time of a micro-batch, >= 0.
        micro_batches: M, >= 1.
        workers: N, >= 2.
        comm_time: T^c, what communication adds to each step, >= 0.
    """
    minimize_scalar = scipy("optimize").minimize_scalar
    mean, deviation, count = _statistics(mu, sigma, micro_batches)
    communication = check_time("comm_time", comm_time)
    step = expected_step_time(mean, deviation, count, workers)

    def speedups(taus: Floats) -> Floats:
        shares = _completed(mean, deviation, count, taus) / count
        return _speedup(taus, shares, step, communication)

    # Above E[T] a larger threshold costs nothing and drops less: math.inf is the best one there.
    grid = _grid(mean, deviation, count, step)
    best = int(np.argmax(speedups(grid)))
    between = minimize_scalar(
        lambda tau: -float(speedups(np.asarray(tau))),
        bounds=(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]),
        method="bounded",
        options={"xatol": 1e-9 * step},
    ).x
    found = np.array([grid[best], between])
    gains = speedups(found)
    return float(found[gains.argmax()]) if gains.max() > 1 + EQUAL else math.inf


def _grid(mean: float, deviation: float, count: int, step: float) -> Floats:
    """Return times from M mu / 2 to E[T], dense enough around each micro-batch to see its peak."""
    ends = np.arange(count // 2, count + 1)
    reach = np.minimum(8 * deviation * np.sqrt(ends), mean / 2)
    around = (ends * mean + np.linspace(-1, 1, 65)[:, np.newaxis] * reach).ravel()
    grid = np.concatenate([around, np.linspace(count * mean, step, 129)])
    least = count * mean / 2
    return np.unique(np.concatenate([[least, step], grid[(grid > least) & (grid < step)]]))


def _completed(mean: float, deviation: float, count: int, taus: Floats) -> Floats:
    """Return (5)."""
    ndtr = scipy("special").ndtr
    total = np.zeros(taus.shape)
    for m in range(1, count + 1):
        late = taus - m * mean
        scale = math.sqrt(m) * deviation
        total += ndtr(late / scale) if scale > 0 else late > 0
    return total


def _speedup(taus: Floats, shares: Floats, step: float, communication: float) -> Floats:
    """Return (11), of the shares of micro-batches that are finished before the thresholds."""
    return shares * (step + communication) / (np.minimum(taus, step) + communication)


def _statistics(mu: float, sigma: float, micro_batches: SupportsIndex) -> tuple[float, float, int]:
    """Return mu, sigma and M, checked."""
    return (
        check_time("mu", mu, positive=True),
        check_time("sigma", sigma),
        check_count("micro_batches", micro_batches, 1),
    )


def check_thresholds(name: str, values: npt.ArrayLike) -> Floats:
    """Return thresholds, each above 0."""
    taus = check_numbers(name, values)
    if (wrong := taus[~(taus > 0)]).size:
        raise ValueError(
            f"{name} has {float(wrong[0])!r}: more than 0 is needed (math.inf: drop nothing)"
        )
    return taus
