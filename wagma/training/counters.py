"""Counters of an optimizer's steps and averages."""

from collections.abc import Callable

from wagma.collectives import Outcome
from wagma.training import watching
from wagma.training.strategies.base import Algorithm


class Counters:
    """Counters of one rank.

    Attributes:
        steps: steps with gradients of this rank.
        passive_steps: steps without, because its data ran out or its gradients overflowed.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.passive_steps = 0
        self._latest: Outcome | None = None
        self._averages = 0
        self._late = 0
        self._skipped = 0
        self._waited = 0.0
        self._contributions = 0
        self._staleness = 0

    def see(self, outcome: Outcome | None) -> None:
        """Count the outcome of a version, unless it was counted already."""
        if outcome is None or outcome is self._latest:
            return
        self._latest = outcome
        self._averages += 1
        self._late += outcome.late
        self._skipped += outcome.skipped
        self._waited += outcome.waited
        versions = outcome.versions
        self._contributions += len(versions)
        self._staleness += sum(max(versions) - version for version in versions)
        if watching.watcher is not None:
            watching.watcher.see(outcome)

    def counting(self, closure: Callable[[], float], algorithm: Algorithm) -> Callable[[], float]:
        """Return `closure` with counting, since each evaluation in a step has an outcome."""

        def counted() -> float:
            self.see(algorithm.outcome)
            return closure()

        return counted

    def as_dict(self) -> dict[str, int | float]:
        """Return the counters of `wagma.DistributedOptimizer.stats`, without the version."""
        return {
            "steps": self.steps,
            "passive_steps": self.passive_steps,
            "averages": self._averages,
            "late": self._late,
            "late_share": self._late / self._averages if self._averages else 0.0,
            "skipped": self._skipped,
            "staleness_mean": self._staleness / (self._contributions or 1),
            "waited_seconds": self._waited,
            "waited_last_seconds": self._latest.waited if self._latest else 0.0,
        }
