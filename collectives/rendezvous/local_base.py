"""One rank of a job on this machine while it meets the others: what rank 0 and the others share.

A process is in one meeting at a time. From its first one until it ends it holds its rank's number,
and a forked child gives up what tells that its parent lives.
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

__all__ = ["ENDED", "FOREIGN", "TICK_S", "LocalRanks", "Watch"]

Watch = Callable[[], None] | None

TICK_S = 0.05  # how often waits look at the clock
ENDED = Report(PeerError.__name__, None, "the process ended while the collective was made")
FOREIGN = Report(PeerError.__name__, None, "what it sent is no message of this version of wagma")
_OTHER_THREAD = (
    "another thread of this process makes a collective meanwhile, and threads take turns: every "
    "rank has to make its collectives in one order"
)

# Those of two threads would be mixed up.
_turn = threading.Lock()
_open: weakref.WeakSet[LocalRanks] = weakref.WeakSet()
_claims: dict[tuple[str, int], Claim] = {}  # by key and rank; until the process ends


def _forked() -> None:
    """Close in a child what tells that its parent lives."""
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
        self._error: Exception | None = None  # what ended the meeting for all
        self._first: Claim | None = None  # of this rank, while it meets others for the first time
        self._turn = _turn
        self._take_turn()
        _open.add(self)
        try:
            if job.size > 1:
                self._claim()
                self._come_together()
            self._check_claim()
        except BaseException as error:
            self.leave(report(error))
            raise

    @abstractmethod
    def allgather(self, value: Any, *, last: bool) -> list[Any]:
        """Return `value`, plain data, of every rank.

        Raises:
            PeerError, StallError, or what a rank left with.
        """

    def check(self) -> None:
        """Raise what another rank's end made of the meeting, if that is known; do not wait."""
        if self._error is None:
            self._take(0)
        if self._error is not None:
            raise self._error

    def leave(self, reason: Report | None) -> None:
        """End the meeting for this rank; `reason`: what the others do not know yet."""
        if reason is not None and self._error is None:
            self._take_leave(reason)
        for link in self._peers_links():
            link.finish()
        self.close()
        self._turn.release()

    def close(self) -> None:
        """Close the sockets and tell nobody."""
        _open.discard(self)
        for link in self._links():
            link.close()

    def _take_turn(self) -> None:
        """Wait until no other thread of this process is in a meeting."""
        wait = Wait(self._patience, self.rank, self._watch, hint=_OTHER_THREAD)
        while not self._turn.acquire(timeout=TICK_S):
            wait.check(())

    def _claim(self) -> None:
        """Take this rank's number, which another process may have, in another job of this name."""
        known = (self._job.key, self.rank)
        if known not in _claims:
            self._first = _claims[known] = Claim(self._job)

    def _check_claim(self) -> None:
        """Check that no other process wanted this rank's number while the ranks met first."""
        other = self._first.disputed_by() if self._first is not None else None
        if other is not None:
            raise MismatchError(
                f"RANK={self.rank} in two processes, {os.getpid()} and {other}: every rank has its "
                f"own; where two jobs have one name, {REMEDY}"
            )

    def _wait(self, missing: Callable[[], Sequence[int]], wait: Wait | None = None) -> None:
        """Take what comes until nobody is missing."""
        wait = wait or Wait(self._patience, self.rank, self._watch)
        self.check()
        while ranks := missing():
            self._take(TICK_S)
            self.check()
            if wait.seconds > TICK_S:
                self._tell_missing(ranks)
            wait.check(ranks)

    @abstractmethod
    def _come_together(self) -> None: ...

    @abstractmethod
    def _take(self, seconds: float) -> None:
        """Take what has come, or comes within `seconds`."""

    @abstractmethod
    def _take_leave(self, reason: Report) -> None: ...

    @abstractmethod
    def _tell_missing(self, ranks: Sequence[int]) -> None: ...

    @abstractmethod
    def _peers_links(self) -> Iterable[Link]: ...

    @abstractmethod
    def _links(self) -> Iterable[Link | socket.socket]: ...
