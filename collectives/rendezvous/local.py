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

__all__ = ["local_ranks"]

_CALL_S = 0.01  # how often rank 0 is looked for


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
    return (Rank0 if job.rank == 0 else _OtherRank)(job, patience, watch)


class _OtherRank(LocalRanks):
    """A rank that calls rank 0."""

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
            self._error = as_error(common_report({0: ENDED}, self.size))
        except ValueError:
            self._error = as_error(common_report({0: FOREIGN}, self.size))

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
