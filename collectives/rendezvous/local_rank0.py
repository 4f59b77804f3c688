"""The rank at whose address the others meet, and which hands on what each of them says."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..errors import MismatchError
from .address import accept, listen
from .greeting import Hello, Stranger
from .job import REMEDY, Job, outlook
from .link import LONGEST, Link, wait_for
from .local_base import ENDED, FOREIGN, TICK_S, LocalRanks, Watch
from .patience import Patience, Wait
from .reports import Report, as_error, common_report

__all__ = ["Rank0"]

_HOLD_S = 1.0  # for which ranks that look like two jobs' are held back: others of those may come
_STRANGERS = 64  # of those, beside the ranks, that are listened to


class Rank0(LocalRanks):
    """Rank 0, at whose address the others call."""

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
                self._take(TICK_S)
                self.check()
        # Before any rank goes on: who calls from now on comes for the next meeting.
        self._close_door()
        self._tell("together", None)

    def allgather(self, value: Any, *, last: bool) -> list[Any]:  # noqa: ARG002
        """Return `value` of every rank, once all have said theirs."""
        self._check_claim()
        self._values[0] = value
        self._wait(lambda: self._without(self._values.keys()))
        values = [self._values[rank] for rank in range(self.size)]
        self._values.clear()
        self._tell("values", values)
        # One that has got them may be gone for good reason: nobody is listened to.
        wait = Wait(self._patience, self.rank, self._watch)
        while slow := [rank for rank, link in self._peers.items() if link.unsent]:
            wait_for([], [self._peers[rank] for rank in slow], TICK_S)
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
                time.sleep(TICK_S)
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
            self._end(common_report({rank: ENDED}, self.size))
        except ValueError:
            self._end(common_report({rank: FOREIGN}, self.size))

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
