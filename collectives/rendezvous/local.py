"""Messages of a meeting without MPI: ranks on one machine, through sockets of rank 0.

    rank 0   listens at the job's address; asks each connection for its identity ("who"), accepts
             the other ranks ("welcome"), then closes the address ("together")
    others   connect, send their identity ("hello"), and their value of each allgather ("value"),
             beside what the others get of it, null for all
    rank 0   sends all values to all ranks ("values"), and in long waits the missing ranks
             ("missing"); if one rank leaves with an error, all ranks raise it ("leave", "ended")

A closed connection shows the death of a rank at once. Any process may connect: before "hello" and
"welcome" neither side has proved anything. Until then rank 0 accepts short messages only, waits for
no such connection, and closes it when its message is no "hello".
"""

import os
import time
from collections.abc import Sequence
from typing import Any

from .address import call, users_are_told_apart
from .greeting import introduce
from .job import Job
from .link import Link, wait_for
from .local_base import ENDED, FOREIGN, LocalRanks, Watch
from .local_rank0 import Rank0
from .patience import Patience, Wait
from .reports import Report, as_error, common_report

_CALL_S = 0.01  # between two attempts to connect to rank 0


def local_ranks(job: Job, patience: Patience, watch: Watch = None) -> LocalRanks:
    """Return the ranks of `job` once all are connected.

    Args:
        job: the job, with this rank's number.
        patience: how long to wait for missing ranks, and when to warn.
        watch: called during waits; an exception that it raises ends the wait.

    Raises:
        PeerError, StallError: another rank ended, or did not arrive.
        MismatchError: WORLD_SIZE differs, or two jobs have one name.
        RuntimeError: another process has the job's address or this rank's number; the kernel does
            not distinguish this user from others.
    """
    if job.size > 1 and not (job.secret or users_are_told_apart()):
        raise RuntimeError(
            f"in this user namespace other users have this process's number, {os.getuid()}, too: "
            "set WAGMA_JOB to a text that only this job's ranks know, as of `uuidgen`"
        )
    return (Rank0 if job.rank == 0 else _OtherRank)(job, patience, watch)


class _OtherRank(LocalRanks):
    """A rank that connects to rank 0."""

    def __init__(self, job: Job, patience: Patience, watch: Watch) -> None:
        self._link: Link | None = None  # to rank 0
        self._values: list[Any] | None = None
        self._missing: Sequence[int] = (0,)  # as rank 0 reports
        self._together = False
        super().__init__(job, patience, watch)

    def _assemble(self) -> None:
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
                self._handle(*message)

        # A rank may fail in the meeting only after all are connected: then all learn of it. The
        # missing ranks may by now be those of the first allgather, so they are no condition here.
        def missing() -> Sequence[int]:
            self._check_claim()
            return () if self._together else self._missing or (0,)

        self._wait(missing, wait)
        self._missing = ()

    def allgather(self, value: Any, *, last: bool, brief: Any = None) -> list[Any]:  # noqa: ARG002
        self._check_claim()
        self.check()
        assert self._link is not None
        self._link.send("value", (value, brief))
        self._wait(lambda: () if self._values is not None else self._missing or (0,))
        values, self._values, self._missing = self._values, None, ()
        assert values is not None
        return values

    def _links(self) -> list[Link]:
        return [] if self._link is None else [self._link]

    def _peer_links(self) -> list[Link]:
        return self._links()

    def _process(self, seconds: float) -> None:
        assert self._link is not None
        try:
            while self._error is None and self._values is None:
                if not wait_for([self._link], [self._link], seconds):
                    return
                for what, content in self._link.receive():
                    self._handle(what, content)
                seconds = 0
        except EOFError:
            self._error = as_error(common_report({0: ENDED}, self.size))
        except ValueError:
            self._error = as_error(common_report({0: FOREIGN}, self.size))

    def _handle(self, what: str, content: Any) -> None:
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

    def _send_leave(self, reason: Report) -> None:
        if self._link is not None:
            self._link.send("leave", reason)

    def _send_missing(self, ranks: Sequence[int]) -> None:
        """Do nothing: rank 0 knows the missing ranks."""
