"""A GPU that does its work one after the other, on a clock that stands still between calls."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from wagma.training import clock


class FakeGPU:
    """Replaces the clock of `wagma.training.clock`.

    Attributes:
        now: time of the host, in seconds.
        done: when the GPU will have done all that is queued.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.done = 100.0
        monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def sleep(self, seconds: float) -> None:
        """Let the host take so long."""
        self.now += seconds

    def queue(self, seconds: float) -> None:
        """Queue work that takes the GPU so long; the host takes no time."""
        self.done = max(self.now, self.done) + seconds

    def record(self) -> "Recorded":
        """Record an event behind what is queued."""
        return Recorded(self, max(self.now, self.done))


@dataclass
class Recorded:
    """A recorded event, as `torch.cuda.Event`."""

    gpu: FakeGPU
    at: float

    def query(self) -> bool:
        return self.at <= self.gpu.now

    def synchronize(self) -> None:
        self.gpu.now = max(self.gpu.now, self.at)

    def elapsed_time(self, end_event: "Recorded") -> float:
        assert self.query()
        assert end_event.query(), "CUDA refuses that"
        return 1e3 * (end_event.at - self.at)
