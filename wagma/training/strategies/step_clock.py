"""What the parts of a synchronous step take on this rank."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from wagma.training.buckets import Buckets
from wagma.training.strategies.step_table import REMEMBERED

__all__ = ["Parts", "StepClock"]


class Parts(NamedTuple):
    """Seconds of the parts of a step, in the terms of Nie et al. (2024), Sec. 3.2.

    Attributes:
        a: before backward: the update, loading, forward. From the end of the last averaging.
        P: of backward, from its first gradient to the call of the step.
        gamma: share of P after which the first bucket left; no time: 1 if there is one bucket.
        overlap: T_o, of averaging all buckets but the last, without waiting for other ranks.
        last: T_u, of averaging the last one, in the same way.
        step: all, waiting included.
    """

    a: float
    P: float
    gamma: float
    overlap: float
    last: float
    step: float


class StepClock:
    """Measures the steps of an `AllreduceSGD` with timed buckets.

    A step counts when it follows another one and `pause` was not called between them.

    Attributes:
        steps: those that count, by version; the newest `REMEMBERED` versions.
    """

    def __init__(self) -> None:
        self.steps: dict[int, Parts] = {}
        self._seconds = 0.0  # of all steps that count
        self._count = 0
        self._ended: float | None = None  # the averaging before
        self._called = 0.0
        self._first: float | None = None

    def call(self, buckets: Buckets) -> None:
        """Note that the gradients are there."""
        self._called = time.perf_counter()
        self._first = buckets.first

    def end(self, buckets: Buckets, version: int, *, counts: bool) -> None:
        """Note that they are averaged.

        Args:
            buckets: that were averaged.
            version: of the average.
            counts: this rank had the samples that were planned.
        """
        ended, before = time.perf_counter(), self._ended
        self._ended = ended
        self.steps.pop(version - REMEMBERED, None)
        if before is None or not counts:
            return
        took = [max(sent.ended - sent.began - sent.waited, 0.0) for sent in buckets.sent]
        first = self._called if self._first is None else self._first
        backward = max(self._called - first, 1e-9)
        left = buckets.sent[0].began - first
        self.steps[version] = Parts(
            a=max(first - before, 0.0),
            P=backward,
            gamma=min(max(left / backward, 0.0), 1.0),
            overlap=sum(took[:-1]),
            last=took[-1],
            step=ended - before,
        )
        self._seconds += ended - before
        self._count += 1

    def pause(self) -> None:
        """Do not count what lies before the next step."""
        self._ended = None

    def restart(self) -> None:
        """Forget all steps, too."""
        self.__init__()  # type: ignore[misc]

    @property
    def mean(self) -> float | None:
        """Mean seconds of the steps that count; None without one."""
        return self._seconds / self._count if self._count else None

    def typical(self, versions: Iterable[int]) -> Parts:
        """Return the median of each part over these versions; zeros without any."""
        rows = [self.steps[version] for version in versions]
        if not rows:
            return Parts(*[0.0] * len(Parts._fields))
        return Parts(*np.median(np.array(rows), axis=0).tolist())
