"""Micro-batches of a step, drawn until a threshold, and their times."""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from wagma.training.clock import device_of, now

B = TypeVar("B")


class Laps:
    """A stopwatch with laps, in seconds.

    Args:
        device: the device that computes, whose work counts, see `now`.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.times: list[float] = []
        self._device = device
        self._began = self._last = now(device)

    def lap(self) -> float:
        """End a lap; return the time since the start."""
        ended = now(self._device)
        self.times.append(ended - self._last)
        self._last = ended
        return self.seconds

    def ends_after(self, seconds: float) -> float:
        """Return the `time.perf_counter` at which so many seconds have passed since the start."""
        return self._began + seconds

    @property
    def seconds(self) -> float:
        """Total time of all laps."""
        return self._last - self._began


class Draws:
    """Draw the micro-batches of one step until the threshold.

    A micro-batch is finished when the loop asks for the next one. If the loop ends within a
    micro-batch, that one counts as finished if its gradient was computed.

    Args:
        most: largest number of micro-batches; None: as many as fit.
        threshold: seconds from the start of the first one; infinity: no limit.
        parameters: parameters that get gradients.
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
        laps = self.laps = self.laps or Laps(device_of(self._parameters))
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
            if self.preempted or laps.lap() >= self._threshold:
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
