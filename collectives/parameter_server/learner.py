"""Learner: a rank that sends gradients to the servers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import PeerError
from ..partial_allreduce import PartialAllreduce
from ..rendezvous.patience import Patience
from .member import GRADIENT, MODEL, NEWS, Bytes, Code, ParameterServer, Shard
from .selection import Counts, Unused
from .transfers import nap

if TYPE_CHECKING:
    from mpi4py import MPI

_LAST_MESSAGES_S = 0.1  # within this time the last messages of a failed server arrive


class Learner(ParameterServer):
    """A rank that computes gradients.

    Args:
        gradient: this rank's gradient, as bytes; sent in place.
        never_refused: the server accepts every offer: a gradient is sent before the answer.

    Attributes:
        counts: counts of this rank's gradients, see `Counts`; a gradient that is dropped after
            this rank has continued counts as used.
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
        never_refused: bool,
    ) -> None:
        super().__init__(comm, model, shards, ranks, patience)
        self._gradient = gradient
        self._never_refused = never_refused
        self.counts = Counts()
        self._newest = 0  # newest version that this rank knows of

    def push(self, weight: float = 1.0, *, empty: bool = False) -> bool:
        """Offer the gradient, which was computed from the parameters of `version`.

        It is sent if a version can use it. Depending on the method, the model then becomes that of
        a newer version.

        Args:
            weight: weight of the gradient.
            empty: there is no gradient: this rank fills its place in a version without one.

        Returns:
            Whether the model was written.

        Raises:
            PeerError, StallError: a server is lost; too few learners are left; the wait took longer
                than `timeout`.
        """
        self._tell(self._first, Code.OFFER, self.version, weight, empty, self.wants_stop())
        if self._never_refused and not empty:
            self._move(GRADIENT, self._gradient, sends=True)
        content = self._answer("step()")
        code, first, second, *_ = content
        staleness = 0
        if code == Code.TAKE:
            staleness, waits = int(first), second
            if not empty:
                self.counts.up += 1
                if not self._never_refused:
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
        """Count a gradient by its fate."""
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
        """Report that this rank has left its loop, before a call that all ranks make."""
        self._tell(self._first, Code.PAUSE)

    def synchronize(self) -> None:
        """Leave the loop, and receive the final parameters."""
        self.pause()
        _, version, *_ = self._answer("synchronize()")
        self._receive(version)

    def is_stale(self) -> bool:
        """Return whether there is a newer version, for a method that cancels gradients."""
        while (message := self._next_message(self._first, NEWS)) is not None:
            self._newest = int(message[1][1])
        return self._newest > self.version

    def _answer(self, what: str) -> list[float]:
        """Wait for the next control message of the first server, and return it."""
        content = self._await(self._first, what)
        self._check_ended(content)
        return content

    def _check_ended(self, content: Sequence[float]) -> None:
        if content[0] == Code.ENDED:
            raise PeerError(
                f"rank {int(content[1])} failed, died or left, and the learners that are left are "
                "too few for k: make a new optimizer without it, or with a smaller k"
            )

    def _check_lost(self) -> None:
        """Raise if a server is lost; the error that it sent before takes precedence."""
        try:
            super()._check_lost()
        except PeerError:
            until = time.monotonic() + _LAST_MESSAGES_S
            while time.monotonic() < until:
                if (message := self._next_message(self._first)) is not None:
                    self._check_ended(message[1])
                nap(0.0)
            raise

    def _receive(self, version: float) -> None:
        self.counts.down += 1
        self._move(MODEL, self._model, sends=False)
        self.version = int(version)
        self.is_stale()

    def _move(self, tag: int, memory: Bytes, *, sends: bool) -> None:
        began = time.monotonic()
        transfers = [
            self._transfer(server, tag, memory, index, sends=sends)
            for index, server in enumerate(self._servers)
        ]
        for transfer in transfers:
            transfer.start()
        self._check_none_lost(self._finish(transfers, "step()"))
        self.waited += time.monotonic() - began

    def _partners(self) -> Sequence[int]:
        return self._servers
