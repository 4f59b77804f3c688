"""Talking without MPI: ranks on one machine, through sockets of rank 0.

    rank 0   listens at the job's address; asks who calls ("who"), takes in the other ranks
             ("welcome"), then closes it ("together")
    others   connect, say who they are ("hello"), and send their value of each allgather ("value")
    rank 0   sends all values to all ("values"), and while that takes long who is missing
             ("missing"); what ends the meeting for one rank ends it for all ("leave", "ended")

A connection whose other end is gone says so at once: so a death is noticed. Whoever connects may be
anybody: before "hello" and "welcome" both sides have proved nothing, and rank 0 keeps little of
what such a one says, waits for none of them, and closes what is no "hello".
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from .address import Claim, accept, call, listen, users_are_told_apart
from .errors import MismatchError, PeerError
from .greeting import Hello, Stranger, introduce
from .job import REMEDY, Job, outlook
from .link import LONGEST, Link, wait_for
from .patience import Patience, Wait
from .reports import Report, as_error, common_report, report

__all__ = ["LocalRanks", "local_ranks"]

Watch = Callable[[], None] | None

_TICK_S = 0.05  # how often waits look at the clock
_CALL_S = 0.01  # how often rank 0 is looked for
_HOLD_S = 1.0  # for which ranks that look like two jobs' are held back: others of those may come
_STRANGERS = 64  # of those, beside the ranks, that are listened to
_ENDED = Report(PeerError.__name__, None, "the process ended while the collective was made")
_FOREIGN = Report(PeerError.__name__, None, "what it sent is no message of this version of wagma")

# A process is in one meeting at a time: those of two threads would be mixed up.
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


def local_ranks(job: Job, patience: Patience, watch: Watch = None) -> LocalRanks:
    """Return the ranks of `job`, which have come together.

    Args:
        job: with this rank's number.
        patience: with which ranks that do not come are waited for.
        watch: called while they are waited for; what it raises ends that.

    Raises:
        PeerError, StallError: another rank ended, or did not come.
        MismatchError: WORLD_SIZE differs, or two jobs have one name.
        RuntimeError: another process has the job's address, or is this rank; other users cannot be
            told from this one.
    """
    if job.size > 1 and not (job.secret or users_are_told_apart()):
        raise RuntimeError(
            f"in this user namespace other users have this process's number, {os.getuid()}, too: "
            "set WAGMA_JOB to a text that only this job's ranks know, as of `uuidgen`"
        )
    return (_Rank0 if job.rank == 0 else _OtherRank)(job, patience, watch)


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
        self._turn.acquire()
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
            self._take(_TICK_S)
            self.check()
            if wait.seconds > _TICK_S:
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


class _Rank0(LocalRanks):
    def __init__(self, job: Job, patience: Patience, watch: Watch) -> None:
        self._listener: socket.socket | None = None
        self._strangers: list[Stranger] = []
        self._peers: dict[int, Link] = {}
        self._values: dict[int, Any] = {}
        self._outlooks = {outlook(os.environ)}
        self._told: Sequence[int] = ()
        super().__init__(job, patience, watch)

    def _come_together(self) -> None:
        self._listener = listen(self._job)
        self._wait(lambda: self._without(self._peers.keys() | {0}))
        if self._first is not None and len(self._outlooks) > 1:
            until = time.monotonic() + min(_HOLD_S, self._patience.timeout / 2)
            while time.monotonic() < until:
                self._take(_TICK_S)
                self.check()
        # Before any rank goes on: who calls from now on comes for the next meeting.
        self._close_door()
        self._tell("together", None)

    def allgather(self, value: Any, *, last: bool) -> list[Any]:  # noqa: ARG002
        self._check_claim()
        self._values[0] = value
        self._wait(lambda: self._without(self._values.keys()))
        values = [self._values[rank] for rank in range(self.size)]
        self._values.clear()
        self._tell("values", values)
        # One that has got them may be gone for good reason: nobody is listened to.
        wait = Wait(self._patience, self.rank, self._watch)
        while slow := [rank for rank, link in self._peers.items() if link.unsent]:
            wait_for([], [self._peers[rank] for rank in slow], _TICK_S)
            wait.check(slow)
        return values

    def _without(self, ranks: Iterable[int]) -> list[int]:
        return sorted(set(range(self.size)).difference(ranks))

    def _peers_links(self) -> Iterable[Link]:
        return self._peers.values()

    def _links(self) -> list[Link | socket.socket]:
        listener = [] if self._listener is None else [self._listener]
        return [*listener, *self._strangers, *self._peers.values()]

    def _take(self, seconds: float) -> None:
        ranks = {link: rank for rank, link in self._peers.items()}
        for link in wait_for(self._links(), [*self._peers.values()], seconds):
            if link is self._listener:
                self._open_door()
            elif link in ranks:
                self._hear(ranks[link], link)
            elif link in self._strangers:
                self._greet(link)
            if self._error is not None:
                return

    def _open_door(self) -> None:
        """Take those in that call; of too many the first has to call again."""
        assert self._listener is not None
        try:
            for _ in range(_STRANGERS):
                end = accept(self._listener)
                if end is not None:
                    self._strangers.append(Stranger(end))
        except BlockingIOError:
            pass
        except OSError:  # too many files are open
            if not self._strangers:
                time.sleep(_TICK_S)
            self._send_away(len(self._strangers))
        self._send_away(len(self._strangers) - self.size - _STRANGERS)

    def _send_away(self, strangers: int) -> None:
        for _ in range(strangers):
            self._strangers.pop(0).close()

    def _hear(self, rank: int, link: Link) -> None:
        try:
            for what, content in link.receive():
                if what == "leave":
                    self._end(common_report({rank: Report.of(content)}, self.size))
                    return
                self._values[rank] = content
        except EOFError:
            self._end(common_report({rank: _ENDED}, self.size))
        except ValueError:
            self._end(common_report({rank: _FOREIGN}, self.size))

    def _greet(self, stranger: Stranger) -> None:
        try:
            hello = stranger.introduced(self._job)
        except (EOFError, ValueError):  # somebody who only looked who listens, or worse
            self._strangers.remove(stranger)
            stranger.close()
            return
        if hello is None:
            return
        self._strangers.remove(stranger)
        stranger.welcome(self._job, hello)
        wrong = self._objection(hello)
        if wrong is None:
            self._outlooks.add(hello.outlook)
            self._peers[hello.rank] = stranger
            stranger.longest = LONGEST
            stranger.send("missing", self._without(self._peers.keys() | {0}))
            self._told = ()  # the others are told in a moment
        else:
            reason = Report(MismatchError.__name__, None, wrong)
            stranger.send("ended", reason)
            stranger.close()
            self._end(reason)

    def _objection(self, hello: Hello) -> str | None:
        if hello.size != self.size:
            return (
                f"WORLD_SIZE differs between ranks: {self.size} on rank 0, {hello.size} on rank "
                f"{hello.rank}; where two jobs have one name, {REMEDY}"
            )
        if hello.launch and self._job.launch and hello.launch != self._job.launch:
            return (
                f"rank 0, process {os.getpid()}, and rank {hello.rank}, process {hello.pid}, are "
                f"of two jobs with one name (TORCHELASTIC_RUN_ID differs): {REMEDY}"
            )
        if hello.rank in self._peers:
            return (
                f"RANK={hello.rank} in two processes, one of them {hello.pid}: every rank has its "
                f"own; where two jobs have one name, {REMEDY}"
            )
        return None

    def _end(self, reason: Report) -> None:
        self._error = as_error(reason)
        self._tell_end(reason)

    def _take_leave(self, reason: Report) -> None:
        self._tell_end(common_report({0: reason}, self.size))

    def _tell_end(self, reason: Report) -> None:
        """Tell the ranks, those included that have just said who they are."""
        for stranger in self._strangers:
            with suppress(EOFError, ValueError):
                if hello := stranger.introduced(self._job):
                    stranger.welcome(self._job, hello)
                    stranger.send("ended", reason)
        self._tell("ended", reason)
        self._close_door()

    def _close_door(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._send_away(len(self._strangers))

    def _tell_missing(self, ranks: Sequence[int]) -> None:
        if ranks != self._told:
            self._told = ranks
            self._tell("missing", ranks)

    def _tell(self, what: str, content: Any) -> None:
        for link in self._peers.values():
            link.send(what, content)


class _OtherRank(LocalRanks):
    def __init__(self, job: Job, patience: Patience, watch: Watch) -> None:
        self._link: Link | None = None  # to rank 0
        self._values: list[Any] | None = None
        self._missing: Sequence[int] = (0,)  # as rank 0 says
        self._together = False
        super().__init__(job, patience, watch)

    def _come_together(self) -> None:
        wait = Wait(self._patience, self.rank, self._watch)
        while self._link is None:
            end = call(self._job)
            met = None if end is None else introduce(end, self._job, wait)
            if met is None:
                wait.check((0,))
                time.sleep(_CALL_S)
                continue
            self._link, others = met
            for message in others:
                self._understand(*message)

        # What a rank does in the meeting, ending included, is heard by all only if all are there.
        # Who is missing may by now be said of the first allgather: it does not tell.
        def missing() -> Sequence[int]:
            self._check_claim()
            return () if self._together else self._missing or (0,)

        self._wait(missing, wait)
        self._missing = ()

    def allgather(self, value: Any, *, last: bool) -> list[Any]:  # noqa: ARG002
        self._check_claim()
        self.check()
        assert self._link is not None
        self._link.send("value", value)
        self._wait(lambda: () if self._values is not None else self._missing or (0,))
        values, self._values, self._missing = self._values, None, ()
        assert values is not None
        return values

    def _links(self) -> list[Link]:
        return [] if self._link is None else [self._link]

    def _peers_links(self) -> list[Link]:
        return self._links()

    def _take(self, seconds: float) -> None:
        assert self._link is not None
        try:
            while self._error is None and self._values is None:
                if not wait_for([self._link], [self._link], seconds):
                    return
                for what, content in self._link.receive():
                    self._understand(what, content)
                seconds = 0
        except EOFError:
            self._error = as_error(common_report({0: _ENDED}, self.size))
        except ValueError:
            self._error = as_error(common_report({0: _FOREIGN}, self.size))

    def _understand(self, what: str, content: Any) -> None:
        if what == "ended":
            self._error = as_error(Report.of(content))
        elif what == "together":
            self._together = True
        elif not isinstance(content, list):
            raise ValueError(f"{what} has no list")
        elif what == "values":
            self._values = content
        else:
            self._missing = content

    def _take_leave(self, reason: Report) -> None:
        if self._link is not None:
            self._link.send("leave", reason)

    def _tell_missing(self, ranks: Sequence[int]) -> None:
        """Rank 0 knows."""
