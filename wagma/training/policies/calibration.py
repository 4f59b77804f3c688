"""Choice of one threshold from all ranks' micro-batch times, and the gain from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from wagma.theory.dropcompute import choose_threshold
from wagma.training.strategies.base import Algorithm


class ThresholdChoice(NamedTuple):
    """A chosen threshold."""

    threshold: float  # seconds; infinity: nothing is dropped
    speedup: float  # expected speed-up
    drop_rate: float  # expected share of dropped micro-batches


class Calibration:
    """Measured times of this rank in some steps, shared with all ranks once.

    Args:
        steps: number of measured steps, I.
        units: micro-batches of a step, or local steps of a period.
        first: index of the first step.
    """

    def __init__(self, steps: int, units: int, first: int) -> None:
        self.last = first + steps
        self._first = first
        # The last column is the time of averaging.
        self._times = np.full((steps, units + 1), np.nan)

    def add(self, step: int, times: Sequence[float], averaging: float) -> None:
        """Record the seconds of a step, if all its units were computed."""
        row = step - self._first
        if 0 <= row < len(self._times) and len(times) == self._times.shape[1] - 1:
            self._times[row] = [*times, averaging]

    def state(self) -> dict[str, object]:
        """Return the state for a checkpoint."""
        return {"first": self._first, "times": self._times.tolist()}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Calibration:
        """Create a calibration from what `state` returned."""
        times = np.array(state["times"])
        made = cls(times.shape[0], times.shape[1] - 1, state["first"])
        made._times = times
        return made

    def choose(
        self, algorithm: Algorithm, candidates: Sequence[float] | None, step: int, *, preempt: bool
    ) -> ThresholdChoice | int:
        """Return the threshold, equal on all ranks; collective.

        The time of averaging is the shortest over the ranks, that of the rank that does not wait.

        Args:
            algorithm: the algorithm of the ranks.
            candidates: thresholds to choose from; None: all that make a difference.
            step: index of the next step.
            preempt: whether the threshold ends a micro-batch in progress.

        Returns:
            The choice; or the step with which to measure again, if no measured step is complete on
            all ranks.
        """
        all_times = np.zeros((algorithm.size, *self._times.shape))
        all_times[algorithm.rank] = self._times
        algorithm.average(torch.from_numpy(all_times))
        all_times *= algorithm.size
        shared = torch.full((len(ThresholdChoice._fields),), float(step), dtype=torch.float64)
        whole = np.isfinite(all_times).all(axis=(0, 2))
        if algorithm.rank == 0 and whole.any():
            times = all_times[:, whole].transpose(1, 0, 2)
            choice = choose_threshold(
                times[..., :-1],
                times[..., -1].min(axis=1),
                None if candidates is None else np.asarray(candidates, np.float64),
                preempt=preempt,
            )
            shared = torch.tensor(
                [choice.threshold, choice.speedup, choice.drop_rate], dtype=torch.float64
            )
        algorithm.broadcast(shared)
        return ThresholdChoice(*shared.tolist()) if whole.any() else int(shared[0])


class Gain:
    """Compare seconds and finished shares of steps with and without a threshold."""

    def __init__(self) -> None:
        self._seconds = {False: 0.0, True: 0.0}
        self._shares = {False: 0.0, True: 0.0}
        self._steps = {False: 0, True: 0}

    def add(self, seconds: float, share: float, *, dropping: bool) -> None:
        """Add a step."""
        self._seconds[dropping] += seconds
        self._shares[dropping] += share
        self._steps[dropping] += 1

    def speedup(self) -> float:
        """Return the measured speed-up; NaN before steps of both kinds."""
        if not all(self._steps.values()):
            return math.nan
        without, with_ = (self._shares[by] / self._seconds[by] for by in (False, True))
        return with_ / without

    def saved_seconds(self) -> float:
        """Return the seconds by which the steps with a threshold were shorter."""
        if not self._steps[False]:
            return 0.0
        usual = self._seconds[False] / self._steps[False]
        return usual * self._steps[True] - self._seconds[True]
