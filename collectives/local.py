"""Talking without MPI: ranks on one machine, through sockets of rank 0.

    rank 0   listens at the job's address; takes in the other ranks, then closes it ("together")
    others   connect, say who they are ("hello"), and send their value of each allgather ("value")
    rank 0   sends all values to all ("values"), and while that takes long who is missing
             ("missing"); what ends the meeting for one rank ends it for all ("leave", "ended")

A connection whose other end is gone says so at once: so a death is noticed.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

from .address import accept, call, listen
from .errors import MismatchError, PeerError
from .job import Job
from .patience import Patience, Wait
from .reports import Report, as_error, common_report, report

__all__ = ["LocalRanks", "local_ranks"]

Watch = Callable[[], None] | None

_TICK_S = 0.05  # how often waits look at the clock
_CALL_S = 0.01  # how often rank 0 is looked for
_LISTEN_S = 2.0  # how long rank 0 tries to get its address
_ENDED = Report(PeerError.__name__, None, "the process ended while the collective was made")

# A process is in one meeting at a time: those of two threads would be mixed up.
_turn = threading.Lock()
_open: weakref.WeakSet[LocalRanks] = weakref.WeakSet()


def _forked() -> None:
    """A child must not keep its parent's connections open: they tell that the parent lives."""
    global _turn
    for ranks in list(_open):
        ranks.close()
    _turn = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def local_ranks(job: Job, patience: Patience, watch: Watch = None) -> LocalRanks:
    """The ranks of `job`, which have come together.

    Args:
        job: with this rank's number.
        patience: with which ranks that do not come are waited for.
        watch: called while they are waited for; what it raises ends that.

    Raises:
        PeerError, StallError: another rank ended, or did not come.
        MismatchError: WORLD_SIZE differs, or two processes have one RANK.
        RuntimeError: another process has the job's address.
    """
    return (_Rank0 if job.rank == 0 else _OtherRank)(job, patience, watch)


class LocalRanks(ABC):
    """The ranks of a job on this machine, seen from one of them."""

    def __init__(self, job: Job, patience: Patience, watch: Watch) -> None:
        self.rank, self.size, self.on_this_node = job.rank, job.size, job.size
        self._patience = patience
        self._watch = watch
        self._error: Exception | None = None  # what ended the meeting for all
        self._turn = _turn
        self._turn.acquire()
        _open.add(self)
        try:
            self._come_together(job)
        except BaseException as error:
            self.leave(report(error))
            raise

    @abstractmethod
    def allgather(self, value: Any, *, last: bool) -> list[Any]:
        """`value` of every rank.

        Raises:
            PeerError, StallError, or what a rank left with.
        """

    def check(self) -> None:
        """Raises what another rank's end made of the meeting, if that is known; does not wait."""
        if self._error is None:
            self._take(0)
        if self._error is not None:
            raise self._error

    def leave(self, reason: Report | None) -> None:
        """The end of the meeting for this rank; `reason`: what the others do not know yet."""
        if reason is not None and self._error is None:
            self._take_leave(reason)
        self.close()
        self._turn.release()

    def close(self) -> None:
        """Closes the sockets and tells nobody."""
        _open.discard(self)
        for link in self._links():
            link.close()

    def _wait(self, missing: Callable[[], Sequence[int]], wait: Wait | None = None) -> None:
        """Takes what comes until nobody is missing."""
        wait = wait or Wait(self._patience, self.rank, self._watch)
        self.check()
        while ranks := missing():
            self._take(_TICK_S)
            self.check()
            if wait.seconds > _TICK_S:
                self._tell_missing(ranks)
            wait.check(ranks)

    @abstractmethod
    def _come_together(self, job: Job) -> None: ...

    @abstractmethod
    def _take(self, seconds: float) -> None:
        """Takes what has come, or comes within `seconds`."""

    @abstractmethod
    def _take_leave(self, reason: Report) -> None: ...

    @abstractmethod
    def _tell_missing(self, ranks: Sequence[int]) -> None: ...

    @abstractmethod
    def _links(self) -> Iterable[Connection | socket.socket]: ...


class _Rank0(LocalRanks):
    def __init__(self, job: Job, patience: Patience, watch: Watch) -> None:
        self._listener: socket.socket | None = None
        self._strangers: list[Connection] = []  # have not said who they are
        self._peers: dict[int, Connection] = {}
        self._values: dict[int, Any] = {}
        self._told: Sequence[int] = ()
        super().__init__(job, patience, watch)

    def _come_together(self, job: Job) -> None:
        if job.size == 1:
            return
        self._listener = listen(job, _LISTEN_S)
        self._wait(lambda: self._without(self._peers.keys() | {0}))
        # Before any rank goes on: who calls from now on comes for the next meeting.
        self._listener.close()
        self._listener = None
        self._tell(("together", None))

    def allgather(self, value: Any, *, last: bool) -> list[Any]:  # noqa: ARG002
        self._values[0] = value
        self._wait(lambda: self._without(self._values.keys()))
        values = [self._values[rank] for rank in range(self.size)]
        self._values.clear()
        self._tell(("values", values))
        return values

    def _without(self, ranks: Iterable[int]) -> list[int]:
        return sorted(set(range(self.size)).difference(ranks))

    def _links(self) -> list[Connection | socket.socket]:
        listener = [] if self._listener is None else [self._listener]
        return [*listener, *self._strangers, *self._peers.values()]

    def _take(self, seconds: float) -> None:
        ranks = {link: rank for rank, link in self._peers.items()}
        for link in connection.wait(self._links(), seconds):
            if link is self._listener:
                stranger = accept(self._listener)
                self._strangers += [] if stranger is None else [stranger]
            elif link in ranks:
                self._hear(ranks[link], link)
            elif isinstance(link, Connection):
                self._greet(link)
            if self._error is not None:
                return

    def _hear(self, rank: int, link: Connection) -> None:
        try:
            what, content = link.recv()
        except (EOFError, OSError):
            what, content = "leave", _ENDED
        if what == "leave":
            self._end(common_report({rank: content}, self.size))
        else:
            self._values[rank] = content

    def _greet(self, stranger: Connection) -> None:
        try:
            rank, size, pid = stranger.recv()
        except (EOFError, OSError):  # somebody who only looked who listens
            stranger.close()
            self._strangers.remove(stranger)
            return
        if size != self.size:
            wrong = (
                f"WORLD_SIZE differs between ranks: {self.size} on rank 0, {size} on rank {rank}"
            )
        elif rank in self._peers:
            wrong = f"RANK={rank} in two processes, one of them {pid}: every rank has its own"
        else:
            self._strangers.remove(stranger)
            self._peers[rank] = stranger
            _send(stranger, ("missing", self._without(self._peers.keys() | {0})))
            self._told = ()  # the others are told in a moment
            return
        self._end(Report(MismatchError.__name__, None, wrong))

    def _end(self, reason: Report) -> None:
        self._error = as_error(reason)
        self._tell(("ended", reason))

    def _take_leave(self, reason: Report) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._tell(("ended", common_report({0: reason}, self.size)))

    def _tell_missing(self, ranks: Sequence[int]) -> None:
        if ranks != self._told:
            self._told = ranks
            self._tell(("missing", ranks))

    def _tell(self, message: tuple[str, Any]) -> None:
        for link in (*self._peers.values(), *self._strangers):
            _send(link, message)


class _OtherRank(LocalRanks):
    def __init__(self, job: Job, patience: Patience, watch: Watch) -> None:
        self._link: Connection | None = None  # to rank 0
        self._values: list[Any] | None = None
        self._missing: Sequence[int] = (0,)  # as rank 0 says
        self._together = False
        super().__init__(job, patience, watch)

    def _come_together(self, job: Job) -> None:
        wait = Wait(self._patience, self.rank, self._watch)
        while self._link is None:
            link = call(job)
            if link is not None:
                self._introduce(link, wait)
            else:
                wait.check((0,))
                time.sleep(_CALL_S)

    def _introduce(self, link: Connection, wait: Wait) -> None:
        """Says who this is; the link is kept if rank 0 has heard it, and was not just leaving."""
        _send(link, (self.rank, self.size, os.getpid()))
        try:
            while not link.poll(_TICK_S):
                wait.check((0,))
            first = link.recv()
        except (EOFError, OSError):
            link.close()
            return
        except BaseException:
            link.close()
            raise
        self._link = link
        self._understand(*first)
        # What a rank does in the meeting, ending included, is heard by all only if all are there.
        # Who is missing may by now be said of the first allgather: it does not tell.
        self._wait(lambda: () if self._together else self._missing or (0,), wait)
        self._missing = ()

    def allgather(self, value: Any, *, last: bool) -> list[Any]:  # noqa: ARG002
        self.check()
        assert self._link is not None
        _send(self._link, ("value", value))
        self._wait(lambda: () if self._values is not None else self._missing or (0,))
        values, self._values, self._missing = self._values, None, ()
        assert values is not None
        return values

    def _links(self) -> list[Connection]:
        return [] if self._link is None else [self._link]

    def _take(self, seconds: float) -> None:
        assert self._link is not None
        try:
            while self._error is None and self._values is None and self._link.poll(seconds):
                self._understand(*self._link.recv())
                seconds = 0
        except (EOFError, OSError):
            self._error = as_error(common_report({0: _ENDED}, self.size))

    def _understand(self, what: str, content: Any) -> None:
        if what == "ended":
            self._error = as_error(content)
        elif what == "values":
            self._values = content
        elif what == "together":
            self._together = True
        else:
            self._missing = content

    def _take_leave(self, reason: Report) -> None:
        if self._link is not None:
            _send(self._link, ("leave", reason))

    def _tell_missing(self, ranks: Sequence[int]) -> None:
        """Rank 0 knows."""


def _send(link: Connection, message: Any) -> None:
    """To one that may be gone, which is found out by listening to it."""
    content = pickle.dumps(message)
    with suppress(OSError):
        link.send_bytes(content)
