"""The place at which `wagma.Profile` sees the collective calls of optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from wagma.collectives import Outcome
    from wagma.training.strategies.base import Algorithm


class Watcher(Protocol):
    """What watches the optimizers of this process."""

    def enter(self, algorithm: Algorithm) -> None:
        """Note that a call begins in which ranks may wait for each other."""

    def leave(self) -> None:
        """Note that this call ends."""

    def see(self, outcome: Outcome) -> None:
        """Note the outcome of a version; it may come after `leave`, but before `end_step`."""

    def end_step(self, algorithm: Algorithm) -> None:
        """Note that a step ends."""


watcher: Watcher | None = None
