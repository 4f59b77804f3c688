"""The time at which a GPU has got as far as the program, without waiting for the GPU.

What the program queues on a GPU is done later. An event that is queued behind it says when.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch


class Event(Protocol):
    """What a clock needs of a recorded `torch.cuda.Event` that times."""

    def query(self) -> bool:
        """Return whether the work before it is done."""

    def synchronize(self) -> None:
        """Wait until it is, asleep."""

    def elapsed_time(self, end_event: Any) -> float:
        """Return the milliseconds between two events whose work is done."""


def device_of(parameters: Sequence[torch.Tensor]) -> torch.device | None:
    """Return the device of the parameters; None: there are none."""
    return parameters[0].device if parameters else None


class Moment:
    """A point of the program, which passes when the work that was queued before it is done.

    Args:
        clock: of the device.
        event: behind that work; None: there is none, and the moment has passed.

    Thread-safe.
    """

    def __init__(self, clock: "Clock", event: Event | None) -> None:
        self.queued = time.perf_counter()
        self._clock = clock
        self._event = event
        self._seconds = self.queued if event is None else None

    @property
    def passed(self) -> bool:
        """Whether the work before it is done; does not wait."""
        return self._seconds is not None or (self._event is not None and self._event.query())

    @property
    def seconds(self) -> float:
        """The `time.perf_counter` at which it passed; waits until then, asleep."""
        if self._seconds is None:
            assert self._event is not None
            self._event.synchronize()
            self._seconds = self._clock.date(self.queued, self._event)
        return self._seconds

    @property
    def age(self) -> float:
        """Seconds since it passed; 0 before."""
        return time.perf_counter() - self.seconds if self.passed else 0.0


class Clock:
    """Mark points of a program that a device executes late.

    Args:
        device: the device; None, or another than a GPU: nothing is queued, and moments pass at
            once. Of a GPU only work on the caller's current stream counts. Creation waits for that
            once, to know which time of the GPU is which of the host.
        record: records an event behind what is queued; None: on that stream.

    Attributes:
        is_late: whether moments may pass later than the program comes to them.

    Thread-safe.
    """

    def __init__(
        self, device: torch.device | None, record: Callable[[], Event] | None = None
    ) -> None:
        if record is None and device is not None and device.type == "cuda":
            record = partial(_record, device)
        self._record = record
        self.is_late = record is not None
        if record is not None:
            event = record()
            event.synchronize()
            self._known = event, time.perf_counter()  # the latest event whose time is known

    def mark(self) -> Moment:
        """Return this point of the program."""
        return Moment(self, None if self._record is None else self._record())

    def date(self, queued: float, event: Event) -> float:
        """Return the `time.perf_counter` of an event whose work is done.

        It lies between when the event was queued and now, which also bounds how far the clocks of
        host and GPU drift apart.
        """
        known, then = self._known
        at = then + 1e-3 * known.elapsed_time(event)
        at = min(max(at, queued), time.perf_counter())
        if at > then:
            self._known = event, at
        return at


class Lead:
    """Keep the program from running far ahead of a GPU, before it decides by what has happened.

    Args:
        clock: of the device.
        most: calls of `keep` whose work may be under way when one returns.

    Not thread-safe: one thread at a time.
    """

    def __init__(self, clock: Clock, most: int = 2) -> None:
        self._clock = clock
        self._most = most
        self._moments: deque[Moment] = deque()

    def keep(self) -> None:
        """Wait for the work that was queued before the `most`-th call before this one."""
        if self._clock.is_late:
            self._moments.append(self._clock.mark())
            while len(self._moments) > self._most:
                self._moments.popleft().seconds  # noqa: B018 (waits)


def _record(device: torch.device) -> Event:
    event = torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event
