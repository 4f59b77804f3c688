"""From the times of all ranks' micro-batches to one threshold, and what it gained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from wagma.theory.dropcompute import choose_threshold
from wagma.training.strategies.base import Algorithm

__all__ = ["Calibration", "Chosen", "Gain"]


class Chosen(NamedTuple):
    """A threshold.

    Attributes:
        threshold: seconds; infinity: nothing is dropped.
        speedup: expected.
        drop_rate: expected.
    """

    threshold: float
    speedup: float
    drop_rate: float


class Calibration:
    """The times of this rank in some steps, to be shared once.

    Args:
        steps: that are measured, I.
        units: micro-batches of a step, or local steps of a period.
        first: number of the first step.
    """

    def __init__(self, steps: int, units: int, first: int) -> None:
        self.last = first + steps
        self._first = first
        # The last one of a step: its averaging.
        self._times = np.full((steps, units + 1), np.nan)

    def add(self, step: int, times: Sequence[float], averaging: float) -> None:
        """Note the seconds of a step; one that has not all units is left out."""
        row = step - self._first
        if 0 <= row < len(self._times) and len(times) == self._times.shape[1] - 1:
            self._times[row] = [*times, averaging]

    def state(self) -> dict[str, object]:
        """Return what has to be saved."""
        return {"first": self._first, "times": self._times.tolist()}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Calibration:
        """Return the one that `state` is of."""
        times = np.array(state["times"])
        made = cls(times.shape[0], times.shape[1] - 1, state["first"])
        made._times = times
        return made

    def choose(
        self, algorithm: Algorithm, candidates: Sequence[float] | None, step: int, *, preempt: bool
    ) -> Chosen | int:
        """Return the threshold, the same on all ranks; collective.

        An averaging takes what it takes the rank that waits for nobody: the shortest time.

        Args:
            algorithm: whose ranks they are.
            candidates: thresholds to choose from, None: all that differ.
            step: that comes next.
            preempt: whether the threshold ends what is in progress.

        Returns:
            If there is no step that all ranks have whole, the one with which to begin again.
        """
        all_times = np.zeros((algorithm.size, *self._times.shape))
        all_times[algorithm.rank] = self._times
        algorithm.average(torch.from_numpy(all_times))
        all_times *= algorithm.size
        found = torch.full((len(Chosen._fields),), float(step), dtype=torch.float64)
        whole = np.isfinite(all_times).all(axis=(0, 2))
        if algorithm.rank == 0 and whole.any():
            times = all_times[:, whole].transpose(1, 0, 2)
            choice = choose_threshold(
                times[..., :-1],
                times[..., -1].min(axis=1),
                None if candidates is None else np.asarray(candidates, np.float64),
                preempt=preempt,
            )
            found = torch.tensor(
                [choice.threshold, choice.speedup, choice.drop_rate], dtype=torch.float64
            )
        algorithm.broadcast(found)
        return Chosen(*found.tolist()) if whole.any() else int(found[0])


class Gain:
    """What a threshold has gained: seconds and finished shares of steps without and with it."""

    def __init__(self) -> None:
        self._seconds = {False: 0.0, True: 0.0}
        self._shares = {False: 0.0, True: 0.0}
        self._steps = {False: 0, True: 0}

    def add(self, seconds: float, share: float, *, dropping: bool) -> None:
        """Note a step."""
        self._seconds[dropping] += seconds
        self._shares[dropping] += share
        self._steps[dropping] += 1

    def speedup(self) -> float:
        """Return how much more is computed per second; nan before both are known."""
        if not all(self._steps.values()):
            return math.nan
        rates = {by: self._shares[by] / self._seconds[by] for by in (False, True)}
        return rates[True] / rates[False]

    def saved_seconds(self) -> float:
        """Return the seconds by which the steps with a threshold were shorter."""
        if not self._steps[False]:
            return 0.0
        usual = self._seconds[False] / self._steps[False]
        return usual * self._steps[True] - self._seconds[True]
