"""DropCompute in theory: step times, expected speed-ups and thresholds (Giladi et al., 2023).

Each of N workers accumulates the gradients of M micro-batches per step, and stops when the time of
its step reaches a threshold tau. A micro-batch is finished if the cumulative time at its end is
strictly below tau. The time of a step is that of its slowest worker, T, and T^c for communication.

Equations carry the paper's numbers. Times are seconds, or any other unit as long as it is the same.
Where the paper's print is wrong:

- (7) and (12) fold T^c into E[T]. Put into (11) as printed this gives a speed-up below 1 for a
  threshold that drops nothing. Here E[T] is computing alone, and T^c is added where (6) adds it.
- The closed form of the best threshold, argmax sum_m Phi(...) / (tau + T^c), holds for tau <= E[T]
  alone. `optimal_threshold` maximises (11) itself.
- The lognormal noise of the tables beside Figs. 13 and 14 has mu = -1.84, -2.04 and so on; some
  prints lost the sign of the first.

scipy is imported where it is used: to choose a threshold from measured times numpy is enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.inject.draws import bounded_lognormal
from wagma.theory.checks import check_numbers, check_time, check_workers
from wagma.theory.maxima import Distribution, expected_maximum

__all__ = [
    "ThresholdChoice",
    "choose_threshold",
    "delays",
    "effective_speedup",
    "expected_completed",
    "expected_step_time",
    "optimal_threshold",
    "slowdown_ratio",
]

Floats = npt.NDArray[np.float64]

# Speed-ups that differ by no more than this share are equal: rounding makes such differences.
_EQUAL = 1e-9


# ---- the formulas --------------------------------------------------------------------------------


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
    ndtri = _scipy("special").ndtri
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
        0 to M; of the shape of `threshold`.
    """
    mean, deviation, count = _statistics(mu, sigma, micro_batches)
    return _shaped(_completed(mean, deviation, count, _thresholds("threshold", threshold)))


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
    taus, communication = _thresholds("threshold", threshold), check_time("comm_time", comm_time)
    step = expected_step_time(mean, deviation, count, workers)
    if step_time is not None:
        step = check_time("step_time", step_time, positive=True)
    shares = _completed(mean, deviation, count, taus) / count
    saved = (step + communication) / (np.minimum(taus, step) + communication)
    return _shaped(shares * saved)


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
    minimize_scalar = _scipy("optimize").minimize_scalar
    mean, deviation, count = _statistics(mu, sigma, micro_batches)
    communication = check_time("comm_time", comm_time)
    step = expected_step_time(mean, deviation, count, workers)

    def speedups(taus: Floats) -> Floats:
        saved = (step + communication) / (np.minimum(taus, step) + communication)
        speedup: Floats = saved * _completed(mean, deviation, count, taus) / count
        return speedup

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
    return float(found[gains.argmax()]) if gains.max() > 1 + _EQUAL else math.inf


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
    ndtr = _scipy("special").ndtr
    total = np.zeros(taus.shape)
    for m in range(1, count + 1):
        late = taus - m * mean
        scale = math.sqrt(m) * deviation
        total += ndtr(late / scale) if scale > 0 else late > 0
    return total


# ---- a threshold from measured times -------------------------------------------------------------


@dataclass(frozen=True)
class ThresholdChoice:
    """What `choose_threshold` found.

    Attributes:
        threshold: the best of the candidates; math.inf: nothing should be dropped.
        speedup: which it is expected to bring, 1 for math.inf.
        drop_rate: share of the micro-batches that it drops, 0 to 1.
        thresholds: the candidates, [C].
        speedups: of each candidate, [C].
        drop_rates: of each candidate, [C].
    """

    threshold: float
    speedup: float
    drop_rate: float
    thresholds: Floats
    speedups: Floats
    drop_rates: Floats


def choose_threshold(
    times: npt.ArrayLike,
    comm_times: npt.ArrayLike,
    candidates: npt.ArrayLike | None = None,
    *,
    preempt: bool = True,
) -> ThresholdChoice:
    """Return the threshold that would have made the measured steps fastest: Algorithm 2.

    For each step i: S_i(tau) = (T_i + T^c_i) / (min(tau, T_i) + T^c_i) * Mtilde_i(tau) / M; the
    speed-up is the mean over the steps. The result depends on the arguments alone, and is the same
    on every worker that passes the same ones. Of candidates with the same speed-up the largest is
    chosen: it drops least.

    Algorithm 2 presumes that the threshold ends a micro-batch in progress. Where it is tested
    between micro-batches, a step ends with the last micro-batch that began before the threshold,
    and all of these count: `preempt=False` computes with that. The difference is large where a
    micro-batch may take long.

    Args:
        times: of each micro-batch, >= 0: [steps, workers, micro-batches].
        comm_times: T^c of each step, without the waiting for the slowest, >= 0: [steps].
        candidates: thresholds to choose from, > 0: [C]. None: the smallest number above each
            cumulative time that was observed, and math.inf. Between these the speed-up only falls.
        preempt: whether the threshold ends a micro-batch in progress.

    Raises:
        ValueError: a shape is wrong, or a value is negative, not finite or not positive.
    """
    measured, communication = _measured(times, comm_times)
    steps, workers, count = measured.shape
    ends = measured.cumsum(axis=2)
    slowest = ends[:, :, -1].max(axis=1)
    if (none := np.flatnonzero(slowest + communication <= 0)).size:
        raise ValueError(
            f"times and comm_times of step {none[0]} are all 0: no speed-up is defined; measure "
            "with a finer clock, or leave the step out"
        )
    taus = _observed(ends) if candidates is None else _candidates(candidates)
    speedups, computed = np.zeros(taus.shape), np.zeros(taus.shape, np.int64)
    for step in range(steps):
        finished, seconds = (_stopped if preempt else _tested)(ends[step], taus)
        computed += finished
        saved = (slowest[step] + communication[step]) / (seconds + communication[step])
        speedups += saved * (finished / (workers * count))
    speedups /= steps
    drop_rates = 1 - computed / (steps * workers * count)
    equal = np.flatnonzero(speedups >= speedups.max() * (1 - _EQUAL))
    best = equal[np.argmax(taus[equal])]
    return ThresholdChoice(
        threshold=float(taus[best]),
        speedup=float(speedups[best]),
        drop_rate=float(drop_rates[best]),
        thresholds=taus,
        speedups=speedups,
        drop_rates=drop_rates,
    )


def _stopped(ends: Floats, taus: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return how many micro-batches of a step count, and its time, if workers stop at once."""
    finished = np.searchsorted(np.sort(ends, axis=None), taus, side="left")
    return finished, np.minimum(taus, ends.max())


def _tested(ends: Floats, taus: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the same if workers finish what they have begun."""
    begins = np.concatenate([np.zeros((len(ends), 1)), ends[:, :-1]], axis=1).ravel()
    order = np.argsort(begins)
    begun = np.searchsorted(begins[order], taus, side="left")
    latest = np.maximum.accumulate(ends.ravel()[order])
    return begun, latest[begun - 1]


def _observed(ends: Floats) -> Floats:
    """Return the smallest number above each cumulative time, and math.inf.

    A time of 0 is left out: without communication its speed-up would be infinite.
    """
    distinct = np.unique(ends)
    return np.append(np.nextafter(distinct[distinct > 0], math.inf), math.inf)


# ---- the environment of the paper's experiments --------------------------------------------------


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
        In the unit of `mean`; of the shape `size`.
    """
    return check_time("mean", mean) * bounded_lognormal(rng.standard_normal(size))


def _scipy(part: str) -> Any:
    """Return a module of scipy.

    Raises:
        ImportError: it cannot be imported; says what to do.
    """
    try:
        return import_module(f"scipy.{part}")
    except ImportError as error:
        raise ImportError(
            f"this formula needs scipy ({error}): python -m pip install scipy, or wagma with its "
            "extra theory"
        ) from error


# ---- arguments -----------------------------------------------------------------------------------


def _statistics(mu: float, sigma: float, micro_batches: SupportsIndex) -> tuple[float, float, int]:
    """Return mu, sigma and M, checked."""
    return (
        check_time("mu", mu, positive=True),
        check_time("sigma", sigma),
        check_count("micro_batches", micro_batches, 1),
    )


def _thresholds(name: str, values: npt.ArrayLike) -> Floats:
    """Return thresholds, each above 0."""
    taus = check_numbers(name, values)
    if (wrong := taus[~(taus > 0)]).size:
        raise ValueError(
            f"{name} has {float(wrong[0])!r}: more than 0 is needed (math.inf: drop nothing)"
        )
    return taus


def _candidates(values: npt.ArrayLike) -> Floats:
    taus = _thresholds("candidates", values)
    if taus.ndim != 1 or not taus.size:
        raise ValueError(
            f"candidates has the shape {taus.shape}: a list of at least one threshold is needed"
        )
    return taus


def _measured(times: npt.ArrayLike, comm_times: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return both arrays, checked."""
    measured, communication = check_numbers("times", times), check_numbers("comm_times", comm_times)
    if measured.ndim != 3 or not measured.size:
        raise ValueError(
            f"times has the shape {measured.shape}: (steps, workers, micro-batches) is needed, "
            "each at least 1"
        )
    if communication.shape != measured.shape[:1]:
        raise ValueError(
            f"comm_times has the shape {communication.shape}: ({len(measured)},) is needed, "
            "one for each step of times"
        )
    for name, values in (("times", measured), ("comm_times", communication)):
        wrong = ~(np.isfinite(values) & (values >= 0))
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            raise ValueError(
                f"{name}[{', '.join(map(str, place))}] is {float(values[place])!r}: a finite "
                "number, at least 0, is needed; leave the step out"
            )
    return measured, communication


def _shaped(values: Floats) -> float | Floats:
    """Return a float for a single threshold."""
    return values if values.ndim else float(values)
