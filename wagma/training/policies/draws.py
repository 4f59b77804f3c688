"""Micro-batches of a step, drawn until a threshold, and their times."""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch

from wagma.training.clock import Clock, Moment

B = TypeVar("B")

UNDER_WAY = 1  # micro-batches that a GPU computes or has not begun when another is queued


class Laps:
    """A stopwatch with laps, in seconds of the device that computes.

    Args:
        clock: of that device.

    Attributes:
        began: the start.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: list[Moment] = []
        self._finished = 0
        self.began = clock.mark()

    def lap(self) -> None:
        """End a lap, whose work may still be under way."""
        self._ends.append(self._clock.mark())

    def elapsed(self) -> float:
        """Return the time from the start to the end of the last lap; 0 if no lap has ended.

        Waits until `UNDER_WAY` laps at most are under way on a GPU, and takes these to last as long
        as the mean of the others.
        """
        laps = len(self._ends)
        while self._finished < laps and (
            self._finished < laps - UNDER_WAY or self._ends[self._finished].passed
        ):
            self._ends[self._finished].seconds  # noqa: B018 (waits)
            self._finished += 1
        if self._finished == 0:
            return 0.0
        seconds = self._ends[self._finished - 1].seconds - self.began.seconds
        return seconds * (laps / self._finished)

    @property
    def times(self) -> list[float]:
        """The time of each lap; waits until all are finished."""
        moments = [moment.seconds for moment in (self.began, *self._ends)]
        return [end - begin for begin, end in pairwise(moments)]


class Draws:
    """Draw the micro-batches of one step until the threshold.

    A micro-batch is finished when the loop asks for the next one. If the loop ends within a
    micro-batch, that one counts as finished if its gradient was computed.

    Args:
        most: largest number of micro-batches; None: as many as fit.
        threshold: seconds from the start of the first one; infinity: no limit.
        parameters: parameters that get gradients.
        clock: of their device.
        blocks: whether each micro-batch has to be computed in a `micro_batch` block.

    Attributes:
        finished: number of finished micro-batches.
        weight: sum of their weights.
        left_out: number of micro-batches dropped by the threshold.
        entered: whether the latest micro-batch was computed in its block.
        unfinished: whether the latest one was ended early or failed.
        preempted: whether the threshold ended it, and with it the step.
        laps: times of the micro-batches; None before the first.
    """

    def __init__(
        self,
        most: int | None,
        threshold: float,
        parameters: Sequence[torch.Tensor],
        clock: Clock,
        *,
        blocks: bool,
    ) -> None:
        self.finished = 0
        self.weight = 0.0
        self.left_out = 0
        self.entered = self.unfinished = self.preempted = False
        self.laps: Laps | None = None
        self._most = math.inf if most is None else most
        self._threshold = threshold
        self._parameters = parameters
        self._clock = clock
        self._blocks = blocks
        self._open: Generator[Any, None, None] | None = None

    def draw(self, sources: deque[Iterator[B]], weight: Callable[[B], float] | None) -> Iterator[B]:
        """Yield micro-batches of `sources` in order, and remove exhausted sources."""
        self.close()
        self._open = self._draw(sources, weight)
        return self._open

    def close(self) -> None:
        """End the generator of a loop that ended early."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _draw(
        self, sources: deque[Iterator[B]], weight: Callable[[B], float] | None
    ) -> Generator[B, None, None]:
        laps = self.laps = self.laps or Laps(self._clock)
        while self.finished < self._most and sources:
            try:
                batch = next(sources[0])
            except StopIteration:
                sources.popleft()
                continue
            counts = 1.0 if weight is None else _checked(weight(batch))
            before = self._gradient_versions()
            self.entered = self.unfinished = False
            try:
                yield batch
            except GeneratorExit:
                if self._gradient_versions() != before:
                    self._finish(counts)
                else:
                    sources.appendleft(iter([batch]))
                return
            if self._blocks and not self.entered:
                raise RuntimeError(
                    "preempt=True needs the loop's body in a block: with opt.micro_batch(): ..."
                )
            if self.preempted:
                sources.appendleft(iter([batch]))
            elif not self.unfinished:
                self._finish(counts)
            laps.lap()
            if self.preempted or laps.elapsed() >= self._threshold:
                if self._most < math.inf:
                    self.left_out = int(self._most) - self.finished
                return

    def _finish(self, weight: float) -> None:
        self.finished += 1
        self.weight += weight

    def _gradient_versions(self) -> list[tuple[int, int] | None]:
        """Return the identities and versions of all gradients, which a backward pass changes."""
        gradients = (parameter.grad for parameter in self._parameters)
        return [None if g is None else (id(g), g._version) for g in gradients]


def _checked(weight: float) -> float:
    if not 0 <= weight < math.inf:
        raise ValueError(
            f"weight of a micro-batch is {weight}: it has to be its number of samples or tokens, "
            "finite and 0 or more"
        )
    return float(weight)


def source_of(batches: Iterable[B]) -> Iterator[B]:
    """Return an iterator over `batches`."""
    try:
        return iter(batches)
    except TypeError:
        raise TypeError(
            f"batches is a {type(batches).__name__}: it has to be something to iterate over, as "
            "a list of micro-batches or iter(loader)"
        ) from None
