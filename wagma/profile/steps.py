"""The steps of this rank as they are recorded: numbers that are appended to arrays."""

from __future__ import annotations

from array import array
from time import perf_counter

# What ends the steps; the last kind that does so decides, because it knows most.
OPTIMIZER, WAGMA, LOOP = range(3)


class Steps:
    """Record the steps of this rank, from one end of a step to the next.

    Args:
        warmup: steps at the beginning that are left out.

    Attributes:
        seen: steps that have ended, with those of the warm-up.
        passes_now: backward passes of the present step.
        rows: of each recorded step seconds in all, of input, in calls of wagma but for the inner
            step, waited in these, the number of versions, and that of backward passes.
        calls: of each other collective the recorded step, arrival and return by `perf_counter`, and
            bytes.
        gaps: the same of the times from a last gradient to the optimizer's step, in which a
            collective may be that nothing else has recorded.
        passes: seconds of each backward pass.
        hook_seconds: seconds that recording took in the recorded steps.

    Not thread-safe.
    """

    def __init__(self, warmup: int) -> None:
        self._warmup = warmup
        self._kind = OPTIMIZER
        self._who: object = None
        self.hook_seconds = 0.0
        self._restart(perf_counter())

    def _restart(self, now: float) -> None:
        self.seen = 0
        self.rows = array("d")
        self.calls, self.gaps = array("d"), array("d")
        self.passes = array("d")
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._began = now
        self._input = self._span = self._waited = self._excluded = self._passed = 0.0
        self._versions = self.passes_now = 0
        self._graded: float | None = None  # when the last gradient of a pass came

    def end(self, now: float, kind: int, who: object) -> None:
        """End a step, if `who` is what ends the steps: one optimizer, or the loop."""
        if kind < self._kind:
            return
        if kind > self._kind or self._who is None:
            if self._who is not None:
                self._restart(now)
            self._kind, self._who = kind, who
        elif who is not self._who:
            return
        self.seen += 1
        if self.seen > self._warmup:
            row = (self._input, self._span, self._waited, self._versions, self.passes_now)
            self.rows.extend((now - self._began, *row))
        elif self.seen == self._warmup:
            self.calls, self.gaps = array("d"), array("d")
            self.passes = array("d")
            self.hook_seconds = 0.0
        self._begin(now)

    def add_input(self, seconds: float) -> None:
        """Add the time in which the loop waited for a batch."""
        self._input += seconds
        self._excluded += seconds

    def add_span(self, seconds: float) -> None:
        """Add a call of wagma, without the inner step in it."""
        self._span += seconds
        self._excluded += seconds

    def add_version(self, waited: float) -> None:
        """Add the outcome of a version: the seconds that this rank waited."""
        self._waited += waited
        self._versions += 1

    def add_call(self, arrived: float, returned: float, size: int) -> None:
        """Add another collective."""
        self.calls.extend((self.seen - self._warmup, arrived, returned, size))
        self._excluded += returned - arrived
        self._graded = None

    def add_gap(self, now: float, size: int) -> None:
        """Add the time since the last gradient, if no collective was recorded in it."""
        if self._graded is not None:
            self.gaps.extend((self.seen - self._warmup, self._graded, now, size))
            self._excluded += now - self._graded
            self._graded = None

    def add_pass(self, now: float) -> None:
        """Add a backward pass that ends now, before its collectives are waited for."""
        before = self._passed
        self._passed = now - self._began - self._excluded
        self._graded = now
        self.passes.append(max(0.0, self._passed - before))
        self.passes_now += 1
