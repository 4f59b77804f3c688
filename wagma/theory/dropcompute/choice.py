"""Choice of a threshold from measured times: Algorithm 2. Pure; needs numpy alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wagma.theory.checks import Floats, check_numbers
from wagma.theory.dropcompute.formulas import EQUAL, check_thresholds


@dataclass(frozen=True)
class ThresholdChoice:
    """Result of `choose_threshold`.

    Attributes:
        threshold: the best candidate; math.inf: drop nothing.
        speedup: its expected speed-up; 1 for math.inf.
        drop_rate: its share of dropped micro-batches, 0 to 1.
        thresholds: the candidates, [C].
        speedups: speed-up of each candidate, [C].
        drop_rates: drop rate of each candidate, [C].
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
    speed-up is the mean over the steps. The result depends on the arguments alone, so that equal
    arguments give equal results on all workers. Of candidates with the same speed-up the largest is
    chosen, because it drops least.

    Algorithm 2 presumes that the threshold ends a micro-batch in progress. If the threshold is
    tested between micro-batches, a step ends with the last micro-batch that began before it, and
    that one counts: `preempt=False` computes this case. The difference is large if micro-batches
    can take long.

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
    equal = np.flatnonzero(speedups >= speedups.max() * (1 - EQUAL))
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


def _candidates(values: npt.ArrayLike) -> Floats:
    taus = check_thresholds("candidates", values)
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
