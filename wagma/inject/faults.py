"""Faults of a rank at a step: it is stopped for a while, or killed."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from wagma.inject.checks import Seconds, check_count, check_number
from wagma.inject.processes import suspend_self


class Fault(ABC):
    """Something that happens to one rank at one step.

    Attributes:
        name: in the text form, see `parse`.
        rank: whose process it is.
        step: when, >= 0.
    """

    name: ClassVar[str]
    rank: int
    step: int

    @abstractmethod
    def strike(self) -> None:
        """Inject the fault into the calling process, whatever its rank."""

    @abstractmethod
    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""


@dataclass(frozen=True)
class Stop(Fault):
    """The process is stopped (SIGSTOP), all its threads with it, and continued (SIGCONT) later.

    In an interactive shell without a launcher, the shell takes a stopped program for suspended.

    Attributes:
        rank: whose process it is.
        step: when, >= 0.
        seconds: until it is continued.
    """

    name = "stop"
    rank: int
    step: int
    seconds: Seconds

    def __post_init__(self) -> None:
        check_count("rank", self.rank, 0)
        check_count("step", self.step, 0)
        check_number("seconds", self.seconds)

    def strike(self) -> None:
        """Stop the calling process; return when it has been continued."""
        suspend_self(self.seconds)

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        return f"rank {self.rank} stopped for {self.seconds:g} s at step {self.step}"


@dataclass(frozen=True)
class Kill(Fault):
    """The process is killed (SIGKILL).

    Attributes:
        rank: whose process it is.
        step: when, >= 0.
    """

    name = "kill"
    rank: int
    step: int

    def __post_init__(self) -> None:
        check_count("rank", self.rank, 0)
        check_count("step", self.step, 0)

    def strike(self) -> None:
        """Kill the calling process; does not return."""
        os.kill(os.getpid(), signal.SIGKILL)

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        return f"rank {self.rank} killed at step {self.step}"
