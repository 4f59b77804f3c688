"""Seconds that the parts of a rank's steps take, whatever the algorithm."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from wagma.training.clock import Clock, Moment
from wagma.training.strategies.base import Algorithm

T = TypeVar("T")

SKIPPED = 4  # steps after a pause, in which memory and caches warm up
LATEST = 64  # steps that are kept


class _Step(NamedTuple):
    """A step that has ended for the program, and maybe not yet for a GPU."""

    version: int
    began: Moment
    ended: Moment
    inside: list[tuple[Moment, Moment]]  # begin and end of each hook
    waited: float

    def parts(self) -> tuple[int, int, int]:
        """Return microseconds (compute, wait, communication); waits until the step has ended."""
        inside = sum(end.seconds - begin.seconds for begin, end in self.inside)
        waited = min(self.waited, inside)
        computed = max(self.ended.seconds - self.began.seconds - inside, 0.0)
        compute, wait, communication = (
            round(1e6 * seconds) for seconds in (computed, waited, inside - waited)
        )
        return compute, wait, communication


class StepTimes:
    """Measure this rank's steps: its own computing, waiting for others, and communication.

    Args:
        clock: of the device that computes.

    Attributes:
        clock: as given; set it before a step.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._steps: dict[int, tuple[int, int, int]] = {}
        self.clear()

    @property
    def steps(self) -> dict[int, tuple[int, int, int]]:
        """Microseconds (compute, wait, communication) of the latest steps, by last version."""
        self._settle()
        return self._steps

    def clear(self) -> None:
        """Forget all steps, and skip the first ones to come."""
        self._steps.clear()
        self._latest: _Step | None = None
        self._skip = SKIPPED
        self.pause()

    def pause(self) -> None:
        """Do not count the step that this rank is in."""
        self._ended: Moment | None = None
        self._inside: list[tuple[Moment, Moment]] = []
        self._waited = 0.0

    def call(self, function: Callable[[], T], algorithm: Algorithm) -> T:
        """Return what `function` returns, a hook in which `algorithm` may average."""
        before, arrived = algorithm.outcome, self.clock.mark()
        result = function()
        self._inside.append((arrived, self.clock.mark()))
        outcome = algorithm.outcome
        if outcome is not None and outcome is not before:
            self._waited += outcome.waited
        return result

    def end(self, version: int) -> None:
        """Note that a step has ended, whose last version is `version`."""
        self._settle()  # the one before, which a GPU has done meanwhile
        began, now = self._ended, self.clock.mark()
        inside, waited = self._inside, self._waited
        self.pause()
        self._ended = now
        if began is None or self._skip:
            self._skip = max(self._skip - 1, 0)
            return
        self._latest = _Step(version, began, now, inside, waited)

    def _settle(self) -> None:
        if self._latest is not None:
            latest, self._latest = self._latest, None
            self.add(latest.version, latest.parts())

    def add(self, version: int, parts: tuple[int, int, int]) -> None:
        """Keep the microseconds (compute, wait, communication) of a step."""
        if len(self._steps) == LATEST:
            del self._steps[next(iter(self._steps))]
        self._steps[version] = parts
