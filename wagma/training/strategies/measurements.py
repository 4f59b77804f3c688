"""Measurements of synchronous steps: times of their parts, and norms."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from wagma.theory.cannikin import Measured, NoiseScale
from wagma.training.buckets import Buckets, Sent
from wagma.training.clock import Moment, device_of

REMEMBERED = 1000  # the newest steps
NORMS = 2  # per step: of this rank's gradient, and of the mean over all ranks


class Parts(NamedTuple):
    """Seconds of the parts of a step, in the terms of Nie et al. (2024), Sec. 3.2."""

    a: float  # before backward, from the end of the last averaging: update, loading, forward
    P: float  # backward, from its first gradient to the call of the step
    gamma: float  # share of P after which the first bucket was sent, not seconds; 1 with one bucket
    overlap: float  # T_o, averaging of all buckets but the last, without waiting for other ranks
    last: float  # T_u, averaging of the last bucket, without waiting for other ranks
    step: float  # the whole step, waiting included


def measured_by(
    batches: Sequence[int], parts: Sequence[Parts], noise: NoiseScale | None
) -> Measured:
    """Return the measurements of all ranks for a planner; a rank without samples computes nothing.

    Args:
        batches: samples of each rank.
        parts: typical parts of each rank's steps.
        noise: estimate of the noise scale; None: not measured.
    """
    busy = [batch > 0 for batch in batches]
    return Measured(
        batches,
        [part.a * has for part, has in zip(parts, busy, strict=True)],
        [part.P * has for part, has in zip(parts, busy, strict=True)],
        [part.gamma for part in parts],
        [part.overlap for part in parts],
        [part.last for part in parts],
        float(np.mean([part.step for part in parts])),
        noise,
    )


class _Step(NamedTuple):
    """A step whose gradients are averaged for the program, and maybe not yet for a GPU."""

    version: int
    before: Moment  # the end of the previous averaging
    first: Moment  # the first gradient
    called: Moment  # all gradients
    ended: Moment
    sent: Sequence[Sent]

    def parts(self) -> Parts:
        """Return the parts of the step; waits until it has ended."""
        before, first, called = self.before.seconds, self.first.seconds, self.called.seconds
        took = [max(sent.ended - sent.began - sent.waited, 0.0) for sent in self.sent]
        backward = max(called - first, 1e-9)
        left = self.sent[0].began - first
        return Parts(
            a=max(first - before, 0.0),
            P=backward,
            gamma=min(max(left / backward, 0.0), 1.0),
            overlap=sum(took[:-1]),
            last=took[-1],
            step=self.ended.seconds - before,
        )


class StepClock:
    """Measure the steps of an `AllreduceSGD` with timed buckets.

    A step counts if it follows another one and `pause` was not called between them.
    """

    def __init__(self) -> None:
        self._steps: dict[int, Parts] = {}
        self._seconds = 0.0  # of all steps that count
        self._count = 0
        self._ended: Moment | None = None  # when the previous averaging ended
        self._called: Moment | None = None
        self._first: Moment | None = None
        self._latest: _Step | None = None

    @property
    def steps(self) -> dict[int, Parts]:
        """The steps that count, by version; the newest `REMEMBERED` versions."""
        self._settle()
        return self._steps

    def call(self, buckets: Buckets) -> None:
        """Record that the gradients are computed."""
        self._called = buckets.clock.mark()
        self._first = buckets.first

    def end(self, buckets: Buckets, version: int, *, counts: bool) -> None:
        """Record that the gradients are averaged.

        Args:
            buckets: the averaged buckets.
            version: version of the average.
            counts: whether this rank had as many samples as planned.
        """
        self._settle()  # the step before, which a GPU has done meanwhile
        before, self._ended = self._ended, buckets.clock.mark()
        self._steps.pop(version - REMEMBERED, None)
        if before is not None and counts and self._called is not None:
            first = self._first or self._called
            self._latest = _Step(version, before, first, self._called, self._ended, buckets.sent)

    def _settle(self) -> None:
        if self._latest is not None:
            parts = self._steps[self._latest.version] = self._latest.parts()
            self._latest = None
            self._seconds += parts.step
            self._count += 1

    def pause(self) -> None:
        """Do not count the next step, whose time includes the pause."""
        self._ended = None

    def restart(self) -> None:
        """Forget all steps and pause."""
        self.__init__()  # type: ignore[misc]

    @property
    def mean(self) -> float | None:
        """Mean seconds of the steps that count; None before the first."""
        self._settle()
        return self._seconds / self._count if self._count else None

    def typical(self, versions: Iterable[int]) -> Parts:
        """Return the median of each part over these versions; zeros if there are none."""
        rows = [self.steps[version] for version in versions]
        if not rows:
            return Parts(*[0.0] * len(Parts._fields))
        return Parts(*np.median(np.array(rows), axis=0).tolist())


def squared_norm(
    parameters: Sequence[torch.Tensor], scale: float = 1.0, *, counts: bool = True
) -> torch.Tensor:
    """Return the squared norm of the parameters' gradients, divided by `scale`; 0 without any.

    A tensor of one float64 on their device, which may compute it later; `counts` False: 0.
    """
    gradients = [one.grad for one in parameters if counts and one.grad is not None]
    if not gradients:
        return torch.zeros((), dtype=torch.float64, device=device_of(parameters))
    norms = torch.stack(torch._foreach_norm(gradients))
    return norms.double().square().sum() / scale**2


class StepNorms:
    """The squared norms of the newest `REMEMBERED` versions."""

    def __init__(self) -> None:
        self._norms: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def add(self, version: int, own: torch.Tensor, mean: torch.Tensor) -> None:
        """Record the norms of a version; forget old ones."""
        while self._norms and (oldest := next(iter(self._norms))) <= version - REMEMBERED:
            del self._norms[oldest]
        self._norms[version] = (own, mean)

    def mean(self, versions: Iterable[int]) -> list[float]:
        """Return the mean of both norms over those of these versions that are finite; else -1."""
        pairs = [self._norms[version] for version in versions if version in self._norms]
        if not pairs:
            return [-1.0] * NORMS
        known = torch.stack([torch.stack(pair) for pair in pairs]).cpu()
        known = known[known.isfinite().all(dim=1)]
        means: list[float] = known.mean(dim=0).tolist() if len(known) else [-1.0] * NORMS
        return means

    def clear(self) -> None:
        """Forget all versions."""
        self._norms.clear()
