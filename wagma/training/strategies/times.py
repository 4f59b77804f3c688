"""Seconds that the parts of a rank's steps take, whatever the algorithm."""

from collections.abc import Callable
from typing import TypeVar

from wagma.training.strategies.base import Algorithm

T = TypeVar("T")

SKIPPED = 4  # steps after a pause, in which memory and caches warm up


class StepTimes:
    """Measure this rank's steps: its own computing, waiting for others, and communication.

    Args:
        clock: returns seconds, such as `time.perf_counter`.

    Attributes:
        steps: microseconds (compute, wait, communication) by the last version of the step.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.steps: dict[int, tuple[int, int, int]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget all steps, and skip the first ones to come."""
        self.steps.clear()
        self._skip = SKIPPED
        self.pause()

    def pause(self) -> None:
        """Do not count the step that this rank is in."""
        self._ended: float | None = None
        self._inside = self._waited = 0.0

    def call(self, function: Callable[[], T], algorithm: Algorithm) -> T:
        """Return what `function` returns, a hook in which `algorithm` may average."""
        before, arrived = algorithm.outcome, self._clock()
        result = function()
        self._inside += self._clock() - arrived
        outcome = algorithm.outcome
        if outcome is not None and outcome is not before:
            self._waited += outcome.waited
        return result

    def end(self, version: int) -> None:
        """Note that a step has ended, whose last version is `version`."""
        now, ended, inside = self._clock(), self._ended, self._inside
        waited = min(self._waited, inside)
        self.pause()
        self._ended = now
        if ended is None or self._skip:
            self._skip = max(self._skip - 1, 0)
            return
        parts = (max(now - ended - inside, 0.0), waited, inside - waited)
        compute, wait, communication = (round(1e6 * seconds) for seconds in parts)
        self.steps[version] = (compute, wait, communication)
