"""Delays and faults together, and what makes them happen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np

from wagma.inject.checks import check_count, check_rank
from wagma.inject.draws import Delays, Floats
from wagma.inject.faults import Fault
from wagma.inject.text import NONE, read, spell


def parse(text: str, size: int, seed: int = 0) -> Injector:
    """Read the text form of an imbalance, see `wagma.inject.text`.

    Args:
        text: such as ``paper:2:0.3`` or ``lognormal:0.05,stop:1:20:2.5``.
        size: ranks P.
        seed: of all random draws, >= 0; a second and further event draws numbers of its own.

    Returns:
        What is equal on every rank that passes the same arguments.

    Raises:
        ValueError: the text is no imbalance of P ranks, or names a trace that is none; the message
            names the event, or file and line.
        OSError: a trace cannot be read.
    """
    check_count("size", size, 1)
    check_count("seed", seed, 0)
    parts = [] if text.strip() == NONE else [part.strip() for part in text.split(",")]
    return Injector(size, tuple(read(part, size, seed, n) for n, part in enumerate(parts)))


@dataclass(frozen=True)
class Injector(Delays):
    """The imbalance of a run: delays, which add up, and faults.

    Equal on every rank, so that each knows who is delayed. `str` gives its text form.

    Attributes:
        size: ranks P.
        events: in any number; delays are those of P ranks.

    Raises:
        ValueError: an event is for another number of ranks.
    """

    name = NONE
    size: int
    events: tuple[Delays | Fault, ...] = ()

    def __post_init__(self) -> None:
        check_count("size", self.size, 1)
        object.__setattr__(self, "events", tuple(self.events))
        for event in self.events:
            if isinstance(event, Fault):
                check_rank(event.rank, self.size)
            elif event.size != self.size:
                raise ValueError(f"{event!r} is for {event.size} ranks, not for {self.size}")

    def __str__(self) -> str:
        """Return the text form; ValueError where a trace's path has none."""
        return ",".join(spell(event) for event in self.events) or NONE

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        return ", ".join(event.describe() for event in self.events) or "none of them delayed"

    def _draw(self, steps: int, first: int) -> Floats:
        table = np.zeros((steps, self.size))
        for event in self.events:
            if isinstance(event, Delays):
                table += event._draw(steps, first)
        return table

    def strikes(self, rank: SupportsIndex, step: SupportsIndex) -> bool:
        """Return whether a fault of `rank` is due at `step`."""
        own, now = check_rank(rank, self.size), check_count("step", step, 0)
        return any(
            isinstance(event, Fault) and (event.rank, event.step) == (own, now)
            for event in self.events
        )

    def sleep(self, rank: SupportsIndex, step: SupportsIndex) -> float:
        """Sleep for the delay of `rank` at `step`; return it, in seconds."""
        seconds = self.delay(rank, step)
        if seconds > 0:
            time.sleep(seconds)
        return seconds

    def inject(self, rank: SupportsIndex, step: SupportsIndex) -> float:
        """Inject what is due into the calling process: its faults, then its delay.

        A fault of a step for which this is not called does not happen, and one for which it is
        called again happens again.

        Args:
            rank: of the calling process.
            step: which it is at.

        Returns:
            The delay, in seconds.
        """
        own, now = check_rank(rank, self.size), check_count("step", step, 0)
        for event in self.events:
            if isinstance(event, Fault) and (event.rank, event.step) == (own, now):
                event.strike()
        return self.sleep(own, now)
