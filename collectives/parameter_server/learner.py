"""A rank that sends gradients to parameter servers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import PeerError
from ..partial_allreduce import PartialAllreduce
from ..rendezvous.patience import Patience
from .member import (
    GRADIENT,
    MODEL,
    NEWS,
    Bytes,
    Code,
    ParameterServer,
    Shard,
)
from .selection import Counts, Unused
from .transfers import nap

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Learner"]

_LAST_WORDS_S = 0.1  # until what a server sent before it failed has come


class Learner(ParameterServer):
    """A rank that computes gradients.

    Args:
        gradient: this rank's, as bytes; sent in place.
        always_taken: the server refuses no offer, so that a gradient is sent without an answer.

    Attributes:
        counts: of this rank's gradients, see `Counts`; those that are dropped after this rank has
            gone on count as used.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        model: Bytes,
        gradient: Bytes,
        shards: Sequence[Shard],
        ranks: PartialAllreduce,
        patience: Patience,
        *,
        always_taken: bool,
    ) -> None:
        super().__init__(comm, model, shards, ranks, patience)
        self._gradient = gradient
        self._always_taken = always_taken
        self.counts = Counts()
        self._newest = 0  # version that this rank has heard of

    def push(self, weight: float = 1.0, *, empty: bool = False) -> bool:
        """Offer the gradient, which was computed from the parameters of `version`.

        It is sent if a version can use it. Then the model becomes that of a newer version, if the
        method says so.

        Args:
            weight: of the gradient.
            empty: there is none: this rank takes its place in a version without.

        Returns:
            Whether the model was written.

        Raises:
            PeerError, StallError: a server is lost; too few learners are left; it took too long.
        """
        self._tell(self._first, Code.OFFER, self.version, weight, empty, self.wants_stop())
        if self._always_taken and not empty:
            self._move(GRADIENT, self._gradient, sends=True)
        content = self._answer("step()")
        code, first, second, *_ = content
        staleness = 0
        if code == Code.TAKE:
            staleness, waits = int(first), second
            if not empty:
                self.counts.up += 1
                if not self._always_taken:
                    self._move(GRADIENT, self._gradient, sends=True)
            if not waits:
                self._count(Unused.NO, staleness, empty=empty)
                return False
            content = self._answer("step()")
        _, first, second, stops, *_ = content
        self.stopped |= bool(stops)
        self._count(Unused(int(second)), staleness, empty=empty)
        self._receive(first)
        return True

    def _count(self, unused: Unused, staleness: int, *, empty: bool) -> None:
        """Count what became of a gradient."""
        if empty:
            return
        if unused is Unused.NO:
            self.counts.used += 1
            self.counts.staleness += staleness
        elif unused is Unused.CANCELLED:
            self.counts.cancelled += 1
        else:
            self.counts.dropped += 1

    def pause(self) -> None:
        """Say that this rank has left its loop, before a call that all ranks make."""
        self._tell(self._first, Code.PAUSE)

    def synchronize(self) -> None:
        """Leave the loop, and receive the final parameters."""
        self.pause()
        _, version, *_ = self._answer("synchronize()")
        self._receive(version)

    def is_stale(self) -> bool:
        """Return whether this rank has heard of a newer version, of a method that cancels."""
        while (heard := self._heard(self._first, NEWS)) is not None:
            self._newest = int(heard[1][1])
        return self._newest > self.version

    def _answer(self, what: str) -> list[float]:
        """Wait for the next control message of the first server, and return it."""
        content = self._await(self._first, what)
        self._check_ended(content)
        if content[0] == Code.LEFT:
            self._left.add(self._first)
            self._check_lost()
        return content

    def _check_ended(self, content: Sequence[float]) -> None:
        if content[0] == Code.ENDED:
            raise PeerError(
                f"rank {int(content[1])} failed, died or left, and the learners that are left are "
                "too few for k: make a new optimizer without it, or with a smaller k"
            )

    def _check_lost(self) -> None:
        """Raise if a server is lost: what it said before, if that is why."""
        try:
            super()._check_lost()
        except PeerError:
            until = time.monotonic() + _LAST_WORDS_S
            while time.monotonic() < until:
                if (heard := self._heard(self._first)) is not None:
                    self._check_ended(heard[1])
                nap(0.0)
            raise

    def _receive(self, version: float) -> None:
        self.counts.down += 1
        self._move(MODEL, self._model, sends=False)
        self.version = int(version)
        self.is_stale()

    def _move(self, tag: int, memory: Bytes, *, sends: bool) -> None:
        began = time.monotonic()
        moved = [
            self._transfer(server, tag, memory, index, sends=sends)
            for index, server in enumerate(self._servers)
        ]
        for transfer in moved:
            transfer.start()
        self._need(self._finish(moved, "step()"))
        self.waited += time.monotonic() - began

    def _partners(self) -> Sequence[int]:
        return self._servers
