"""Rank 0 of a job on this machine: accepts the other ranks and forwards their values."""

import os
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..errors import MismatchError
from .address import accept, listen
from .greeting import Hello, UnverifiedLink
from .job import REMEDY, Job, environment_digest
from .link import LONGEST, Link, wait_for
from .local_base import ENDED, FOREIGN, TICK_S, LocalRanks, Watch
from .patience import Patience, Wait
from .reports import Report, as_error, common_report

_HOLD_S = 1.0  # wait if ranks seem to be of two jobs: more of them may arrive and show it
_UNVERIFIED = 64  # connections that are open at once, beside one per rank


class Rank0(LocalRanks):
    """Rank 0: the others connect to its address."""

    def __init__(self, job: Job, patience: Patience, watch: Watch) -> None:
        self._listener: socket.socket | None = None
        self._unverified: list[UnverifiedLink] = []
        self._peers: dict[int, Link] = {}
        self._values: dict[int, Any] = {}
        self._environments = {environment_digest(os.environ)}
        self._missing_sent: Sequence[int] = ()
        super().__init__(job, patience, watch)

    def _assemble(self) -> None:
        self._listener = listen(self._job)
        self._wait(lambda: self._without(self._peers.keys() | {0}))
        if self._first is not None and len(self._environments) > 1:
            until = time.monotonic() + min(_HOLD_S, self._patience.timeout / 2)
            while time.monotonic() < until:
                self._process(TICK_S)
                self.check()
        # Before any rank goes on: connections from now on are for the next meeting.
        self._stop_listening()
        self._send_all("together", None)

    def allgather(self, value: Any, *, last: bool, brief: Any = None) -> list[Any]:  # noqa: ARG002
        """Return `value` of every rank, once all values have arrived."""
        self._check_claim()
        self._values[0] = (value, brief)
        self._wait(lambda: self._without(self._values.keys()))
        pairs = [self._values[rank] for rank in range(self.size)]
        self._values.clear()
        values = [value for value, _ in pairs]
        self._send_all("values", [value if brief is None else brief for value, brief in pairs])
        # A rank that has received the values may end in order: a closed connection is no error.
        wait = Wait(self._patience, self.rank, self._watch)
        while slow := [rank for rank, link in self._peers.items() if link.unsent]:
            wait_for([], [self._peers[rank] for rank in slow], TICK_S)
            wait.check(slow)
        return values

    def _without(self, ranks: Iterable[int]) -> list[int]:
        return sorted(set(range(self.size)).difference(ranks))

    def _peer_links(self) -> Iterable[Link]:
        return self._peers.values()

    def _links(self) -> list[Link | socket.socket]:
        listener = [] if self._listener is None else [self._listener]
        return [*listener, *self._unverified, *self._peers.values()]

    def _process(self, seconds: float) -> None:
        ranks = {link: rank for rank, link in self._peers.items()}
        for link in wait_for(self._links(), [*self._peers.values()], seconds):
            if link is self._listener:
                self._accept()
            elif link in ranks:
                self._receive(ranks[link], link)
            elif link in self._unverified:
                self._identify(link)
            if self._error is not None:
                return

    def _accept(self) -> None:
        """Accept connections; close the oldest unverified ones if there are too many."""
        assert self._listener is not None
        try:
            for _ in range(_UNVERIFIED):
                end = accept(self._listener)
                if end is not None:
                    self._unverified.append(UnverifiedLink(end))
        except BlockingIOError:
            pass
        except OSError:  # too many files are open
            if not self._unverified:
                time.sleep(TICK_S)
            self._drop_unverified(len(self._unverified))
        self._drop_unverified(len(self._unverified) - self.size - _UNVERIFIED)

    def _drop_unverified(self, count: int) -> None:
        for _ in range(count):
            self._unverified.pop(0).close()

    def _receive(self, rank: int, link: Link) -> None:
        try:
            for what, content in link.receive():
                if what == "leave":
                    self._end(common_report({rank: Report.of(content)}, self.size))
                    return
                if not isinstance(content, list):
                    raise ValueError(f"{what} has no list")
                value, brief = content
                self._values[rank] = (value, brief)
        except EOFError:
            self._end(common_report({rank: ENDED}, self.size))
        except ValueError:
            self._end(common_report({rank: FOREIGN}, self.size))

    def _identify(self, link: UnverifiedLink) -> None:
        try:
            hello = link.receive_hello(self._job)
        except (EOFError, ValueError):  # another program, or one that only asked who listens
            self._unverified.remove(link)
            link.close()
            return
        if hello is None:
            return
        self._unverified.remove(link)
        link.welcome(self._job, hello)
        wrong = self._objection(hello)
        if wrong is None:
            self._environments.add(hello.environment)
            self._peers[hello.rank] = link
            link.longest = LONGEST
            link.send("missing", self._without(self._peers.keys() | {0}))
            self._missing_sent = ()  # so that the others get the new list soon
        else:
            reason = Report(MismatchError.__name__, None, wrong)
            link.send("ended", reason)
            link.close()
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
        self._send_end(reason)

    def _send_leave(self, reason: Report) -> None:
        self._send_end(common_report({0: reason}, self.size))

    def _send_end(self, reason: Report) -> None:
        """Send the end to all ranks, and to those whose "hello" has just arrived."""
        for link in self._unverified:
            with suppress(EOFError, ValueError):
                if hello := link.receive_hello(self._job):
                    link.welcome(self._job, hello)
                    link.send("ended", reason)
        self._send_all("ended", reason)
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._drop_unverified(len(self._unverified))

    def _send_missing(self, ranks: Sequence[int]) -> None:
        if ranks != self._missing_sent:
            self._missing_sent = ranks
            self._send_all("missing", ranks)

    def _send_all(self, what: str, content: Any) -> None:
        for link in self._peers.values():
            link.send(what, content)
