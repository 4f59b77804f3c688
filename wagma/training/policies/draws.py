"""The micro-batches of a step, drawn until a threshold, and the times that they took."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

__all__ = ["Draws", "Laps", "source_of"]

B = TypeVar("B")


class Laps:
    """A stopwatch with laps, in seconds."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._began = self._last = time.perf_counter()

    def lap(self) -> float:
        """End a lap; return the time since the start."""
        now = time.perf_counter()
        self.times.append(now - self._last)
        self._last = now
        return self.seconds

    def ends_after(self, seconds: float) -> float:
        """Return when so many seconds are over, as of `time.perf_counter`."""
        return self._began + seconds

    @property
    def seconds(self) -> float:
        """The time of all laps."""
        return self._last - self._began


class Draws:
    """One step's micro-batches, at most so many of them, until the threshold.

    A micro-batch is finished when the loop comes back for the next one. One in whose midst the loop
    is left counts as finished if its gradient has come.

    Args:
        most: micro-batches, None: as many as fit.
        threshold: seconds from the first one's start; infinity: they are not limited.
        parameters: that get gradients.
        blocks: each micro-batch has to be computed in a block.

    Attributes:
        finished: micro-batches.
        weight: sum of the weights of the finished.
        left_out: micro-batches that the threshold has left out.
        entered: whether the one that was drawn last was computed in its block.
        unfinished: whether it was ended in its midst, or failed there.
        preempted: whether a threshold did that: the step is over.
        laps: the times that they took, None before the first.
    """

    def __init__(
        self,
        most: int | None,
        threshold: float,
        parameters: Sequence[torch.Tensor],
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
        self._blocks = blocks
        self._open: Generator[Any, None, None] | None = None

    def draw(self, sources: deque[Iterator[B]], weight: Callable[[B], float] | None) -> Iterator[B]:
        """Yield micro-batches of `sources`, the first one first; take out those that are empty."""
        self.close()
        self._open = self._draw(sources, weight)
        return self._open

    def close(self) -> None:
        """End a loop that was left."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _draw(
        self, sources: deque[Iterator[B]], weight: Callable[[B], float] | None
    ) -> Generator[B, None, None]:
        laps = self.laps = self.laps or Laps()
        while self.finished < self._most and sources:
            try:
                batch = next(sources[0])
            except StopIteration:
                sources.popleft()
                continue
            counts = 1.0 if weight is None else _checked(weight(batch))
            before = self._traces()
            self.entered = self.unfinished = False
            try:
                yield batch
            except GeneratorExit:
                if self._traces() != before:
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
            if self.preempted or laps.lap() >= self._threshold:
                if self._most < math.inf:
                    self.left_out = int(self._most) - self.finished
                return

    def _finish(self, weight: float) -> None:
        self.finished += 1
        self.weight += weight

    def _traces(self) -> list[tuple[int, int] | None]:
        """What a backward pass changes."""
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
    """Return the iterator of `batches`; of an iterator itself."""
    try:
        return iter(batches)
    except TypeError:
        raise TypeError(
            f"batches is a {type(batches).__name__}: it has to be something to iterate over, as "
            "a list of micro-batches or iter(loader)"
        ) from None
