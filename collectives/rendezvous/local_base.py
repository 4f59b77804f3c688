"""Base of rank 0 and the other ranks of a job on this machine while they meet.

A process is in one meeting at a time. From its first meeting until it ends it holds the address of
its rank. A forked child closes its copies of the parent's sockets: they would outlive the parent.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import MismatchError, PeerError
from .address import Claim
from .job import REMEDY, Job
from .link import Link
from .patience import Patience, Wait
from .reports import Report, report

Watch = Callable[[], None] | None

TICK_S = 0.05  # interval of checks in waits
ENDED = Report(PeerError.__name__, None, "the process ended while the collective was made")
FOREIGN = Report(PeerError.__name__, None, "its message is not one of this version of wagma")
_OTHER_THREAD = (
    "another thread of this process is making a collective, and threads take turns: every rank has "
    "to make its collectives in the same order"
)

# Messages of two threads would mix.
_turn = threading.Lock()
_open: weakref.WeakSet[LocalRanks] = weakref.WeakSet()
_claims: dict[tuple[str, int], Claim] = {}  # by key and rank; until the process ends


def _forked() -> None:
    """Close the parent's sockets in a forked child."""
    global _turn
    for ranks in list(_open):
        ranks.close()
    _give_up_claims()
    _turn = threading.Lock()


def _give_up_claims() -> None:
    for claim in _claims.values():
        claim.close()
    _claims.clear()


atexit.register(_give_up_claims)
os.register_at_fork(after_in_child=_forked)


class LocalRanks(ABC):
    """The ranks of a job on this machine, seen from one of them."""

    def __init__(self, job: Job, patience: Patience, watch: Watch) -> None:
        self.rank, self.size, self.on_this_node = job.rank, job.size, job.size
        self._job = job
        self._patience = patience
        self._watch = watch
        self._error: Exception | None = None  # ended the meeting for all ranks
        self._first: Claim | None = None  # this rank's address, in its first meeting
        self._turn = _turn
        self._take_turn()
        _open.add(self)
        try:
            if job.size > 1:
                self._claim()
                self._assemble()
            self._check_claim()
        except BaseException as error:
            self.leave(report(error))
            raise

    @abstractmethod
    def allgather(self, value: Any, *, last: bool, brief: Any = None) -> list[Any]:
        """Return `value`, plain data, of every rank; `last`, `brief`: see `meeting.Ranks`.

        Raises:
            PeerError, StallError, or the error with which a rank left.
        """

    def check(self) -> None:
        """Raise the error with which another rank ended the meeting, if any; do not wait."""
        if self._error is None:
            self._process(0)
        if self._error is not None:
            raise self._error

    def leave(self, reason: Report | None) -> None:
        """End the meeting for this rank; `reason`: an error that the others do not know yet."""
        if reason is not None and self._error is None:
            self._send_leave(reason)
        for link in self._peer_links():
            link.finish()
        self.close()
        self._turn.release()

    def close(self) -> None:
        """Close the sockets without a message."""
        _open.discard(self)
        for link in self._links():
            link.close()

    def _take_turn(self) -> None:
        """Wait until no other thread of this process is in a meeting."""
        wait = Wait(self._patience, self.rank, self._watch, hint=_OTHER_THREAD)
        while not self._turn.acquire(timeout=TICK_S):
            wait.check(())

    def _claim(self) -> None:
        """Claim this rank's address; a process of another job of this name may hold it."""
        known = (self._job.key, self.rank)
        if known not in _claims:
            self._first = _claims[known] = Claim(self._job)

    def _check_claim(self) -> None:
        """Check that no other process tried to claim this rank's address in the first meeting."""
        other = self._first.disputed_by() if self._first is not None else None
        if other is not None:
            raise MismatchError(
                f"RANK={self.rank} in two processes, {os.getpid()} and {other}: every rank has its "
                f"own; where two jobs have one name, {REMEDY}"
            )

    def _wait(self, missing: Callable[[], Sequence[int]], wait: Wait | None = None) -> None:
        """Process messages until no rank is missing."""
        wait = wait or Wait(self._patience, self.rank, self._watch)
        self.check()
        while ranks := missing():
            self._process(TICK_S)
            self.check()
            if wait.seconds > TICK_S:
                self._send_missing(ranks)
            wait.check(ranks)

    @abstractmethod
    def _assemble(self) -> None: ...

    @abstractmethod
    def _process(self, seconds: float) -> None:
        """Process messages that have arrived, or that arrive within `seconds`."""

    @abstractmethod
    def _send_leave(self, reason: Report) -> None: ...

    @abstractmethod
    def _send_missing(self, ranks: Sequence[int]) -> None: ...

    @abstractmethod
    def _peer_links(self) -> Iterable[Link]: ...

    @abstractmethod
    def _links(self) -> Iterable[Link | socket.socket]: ...
