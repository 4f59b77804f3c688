"""Base of the servers and the learners of a parameter server.

A learner offers a gradient to the first server, which decides (selection.py) and answers: send the
gradient, or receive newer parameters instead. The other servers execute the decisions of the first
one in the same order, each for its part of the arrays, so that a version has the same gradients on
all servers. Arrays are only sent on request: a rank that computes need not take part in anything.

Control messages are a few numbers; `Transfer` sends arrays. No rank blocks inside MPI.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from ..communicator import import_mpi
from ..errors import PeerError
from ..partial_allreduce import PartialAllreduce
from ..rendezvous.patience import Patience, Wait
from ..rendezvous.reports import describe_ranks
from .transfers import Transfer, finish, keep, nap

if TYPE_CHECKING:
    from mpi4py import MPI

    from ..stats import Stats

Bytes = npt.NDArray[np.uint8]
CONTROL, NEWS, GRADIENT, MODEL = range(4)  # tags
NUMBERS = 5  # of a control message
_CHECK_S = 0.02  # between two checks for dead ranks


class Code(IntEnum):
    """Kind of a control message; its numbers are in brackets."""

    OFFER = 1  # by a learner: a gradient (version, weight, 1: without one, 1: it wants to stop)
    PAUSE = 2  # by a learner: it has left its loop
    LEFT = 3  # by any rank: it is closed
    TAKE = 4  # by the first server: send the gradient (staleness, 1: parameters follow)
    GIVE = 5  # parameters follow (version, `Unused` of the offered gradient, 1: all stop there)
    ENDED = 6  # by the first server: no version is possible any more (a lost rank)
    # From the first server to the others: execute this. RECEIVED is their answer to RECEIVE.
    RECEIVE = 7  # receive the gradient of a learner (learner)
    ADD = 8  # add the received gradient (weight)
    APPLY = 9
    DROP = 10
    SEND = 11  # send the parameters to a rank (rank, version)
    RETURN = 12  # return to the caller (version, 1: all stop)
    RECEIVED = 13  # (1: yes, 1: it wants to stop)


class Shard(NamedTuple):
    """One server's part of the arrays, in bytes."""

    model: tuple[int, int]  # (start, end) of its parameters
    gradient: tuple[tuple[int, int], ...]  # (start, end) of each part of a gradient that it needs


class Holder(Protocol):
    """Sums and applies gradients on a server, in the thread that calls the server."""

    def add(self, gradient: Bytes, weight: float) -> None:
        """Add a gradient to the sum of the next version."""

    def apply(self) -> None:
        """Step with the mean of the gradients, and begin a new sum."""

    def drop(self) -> None:
        """Begin a new sum."""


class ParameterServer(ABC):
    """A rank of a parameter server: a learner or a server.

    Creation is collective over `comm`, which it duplicates. `close` returns when the ranks that
    exchange messages with this one have closed theirs.

    Args:
        comm: mpi4py intracommunicator; its last `len(shards)` ranks are the servers.
        model: the parameters, as bytes; sent and received in place.
        shards: part of each server, in order.
        ranks: a collective of all ranks, which detects dead ranks; `close` closes it.
        patience: how long to wait for other ranks, and when to warn.

    Attributes:
        rank: this rank.
        size: number of ranks.
        version: version of the parameters on this rank.
        hint: advice that warnings about long waits add.
        waited: seconds that this rank has waited for others so far.
        wants_stop: returns whether this rank wants the training to end, at any moment.
        stopped: all ranks stop at this rank's version.

    Not thread-safe.
    """

    transport = "mpi"

    def __init__(
        self,
        comm: MPI.Intracomm,
        model: Bytes,
        shards: Sequence[Shard],
        ranks: PartialAllreduce,
        patience: Patience,
    ) -> None:
        self._ranks = ranks
        self.rank, self.size = ranks.rank, ranks.size
        self.hint: str | None = None
        self.waited = 0.0
        self.wants_stop: Callable[[], bool] = lambda: False
        self.stopped = False
        self.version = 0
        self.closed = False
        self._patience = patience
        self._model, self._shards = model, shards
        self._learners = range(self.size - len(shards))
        self._servers = range(self.size - len(shards), self.size)
        self._first = self._servers[0]
        self._left: set[int] = set()  # ranks that are closed
        self._sent: list[MPI.Request] = []
        self._transfers: dict[tuple[int, int, bool], Transfer] = {}
        self._checked_at = 0.0
        self._gone: list[int] = []
        duplicate, request = comm.Idup()
        wait = Wait(self._patience, self.rank, lambda: self._check_none_lost(self.lost()))
        while not request.Test():
            wait.check(())
            nap(wait.seconds)
        self._comm: MPI.Intracomm = duplicate

    # ---- messages --------------------------------------------------------------------------------
    def _tell(self, rank: int, code: Code, *numbers: float, tag: int = CONTROL) -> None:
        content = np.zeros(NUMBERS)
        content[: 1 + len(numbers)] = code, *numbers
        self._sent = [request for request in self._sent if not request.Test()]
        self._sent.append(self._comm.Isend(content, rank, tag))

    def _next_message(
        self, rank: int | None = None, tag: int = CONTROL
    ) -> tuple[int, list[float]] | None:
        """Return the next control message, with its sender; None: there is none."""
        mpi = import_mpi()
        status = mpi.Status()
        source = mpi.ANY_SOURCE if rank is None else rank
        if not self._comm.Iprobe(source, tag, status):
            return None
        content = np.zeros(NUMBERS)
        sender = status.Get_source()
        self._comm.Recv(content, sender, tag)
        return sender, content.tolist()

    def _transfer(self, peer: int, tag: int, memory: Bytes, shard: int, *, sends: bool) -> Transfer:
        """Return the transfer of a shard of `memory`; it is made once."""
        key = (peer, tag, sends)
        if key not in self._transfers:
            part = self._shards[shard]
            spans = part.gradient if tag == GRADIENT else (part.model,)
            self._transfers[key] = Transfer(self._comm, memory, spans, peer, tag, sends=sends)
        return self._transfers[key]

    def _free(self) -> None:
        """Free all transfers."""
        for transfer in self._transfers.values():
            transfer.test()
            transfer.free()
        self._transfers = {}
        keep([request for request in self._sent if not request.Test()])
        self._sent = []

    def _forget(self, transfer: Transfer) -> None:
        transfer.free()
        self._transfers = {k: t for k, t in self._transfers.items() if t is not transfer}

    # ---- other ranks -----------------------------------------------------------------------------
    def lost(self) -> list[int]:
        """Return the ranks that are known to have failed or died; do not wait."""
        now = time.monotonic()
        if now - self._checked_at >= _CHECK_S:
            self._checked_at = now
            self._gone = self._ranks.lost()
        return self._gone

    def _check_lost(self) -> None:
        """Raise PeerError if a server is lost."""
        self._check_none_lost(
            [rank for rank in self._servers if rank in self.lost() or rank in self._left]
        )

    def _check_none_lost(self, lost: Sequence[int]) -> None:
        """Raise PeerError if there are ranks in `lost`, which this rank needs."""
        if lost:
            held = all(rank in self._servers for rank in lost)
            raise PeerError(
                f"{describe_ranks(lost)} failed, died or left"
                f"{', and held parameters' if held else ''}: make a new optimizer without it, from "
                "a checkpoint"
            )

    def _finish(self, transfers: Sequence[Transfer], what: str) -> list[int]:
        """Wait until `transfers` have ended; return the lost ranks, whose transfers cannot end."""
        wait = self._wait(what)

        def watch() -> list[int]:
            wait.check(sorted({transfer.peer for transfer in transfers if transfer.active}))
            return self.lost()

        return sorted({transfer.peer for transfer in finish(transfers, watch)})

    def _wait(self, what: str, hint: str | None = None) -> Wait:
        hint = hint or self.hint or "every rank has to take part in the training until it closes"
        return Wait(self._patience, self.rank, self._check_lost, what=what, hint=hint)

    def _await(self, rank: int, what: str) -> list[float]:
        """Wait for the next control message of the server `rank`, and return it.

        Raises:
            PeerError: the server is closed.
        """
        began, wait = time.monotonic(), self._wait(what)
        while (message := self._next_message(rank)) is None:
            wait.check([rank])
            self._progress()
            nap(wait.seconds)
        self.waited += time.monotonic() - began
        if message[1][0] == Code.LEFT:
            self._left.add(rank)
            self._check_lost()
        return message[1]

    def _progress(self) -> None:
        """Advance active transfers."""
        for transfer in self._transfers.values():
            transfer.test()

    # ---- the end ---------------------------------------------------------------------------------
    def stats(self) -> Stats:
        """Return the counters of the collective that detects dead ranks; it makes no versions."""
        return self._ranks.stats()

    @abstractmethod
    def _partners(self) -> Sequence[int]:
        """Return the ranks that exchange messages with this one."""

    def close(self) -> None:
        """Close this rank; return when its partners are closed or lost.

        Raises:
            PeerError: a learner has not left its loop.
        """
        if self.closed:
            return
        self.closed = True
        partners = self._partners()
        for rank in partners:
            self._tell(rank, Code.LEFT)
        wait = Wait(self._patience, self.rank, what="close()", hint="every rank has to close it")
        in_order = False
        try:
            while (here := [r for r in partners if r not in self._left | set(self.lost())]) or (
                not self._is_quiet()
            ):
                while (message := self._next_message()) is not None:
                    self._handle_at_end(*message)
                wait.check(here)
                nap(wait.seconds)
            in_order = not self._ranks.lost()
        finally:
            self._free()
            if not in_order:  # over messages closing would wait for all ranks
                self._ranks.fail()
        if in_order:
            self._ranks.close()
            self._comm.Free()

    def _handle_at_end(self, rank: int, content: Sequence[float]) -> None:
        if content[0] == Code.LEFT:
            self._left.add(rank)
        elif content[0] == Code.OFFER:  # by a rank that continues, and needs this one
            raise PeerError(
                f"{describe_ranks([rank])} has not left its loop, and the server rank {self.rank} "
                "is closed: call synchronize() on all ranks before the end"
            )

    def _is_quiet(self) -> bool:
        """Return whether this rank has no active message to a living rank."""
        while self._next_message(tag=NEWS) is not None:
            pass
        self._sent = [request for request in self._sent if not request.Test()]
        active = [t for t in self._transfers.values() if t.test() and t.peer not in self._gone]
        return bool(self._gone) or not (self._sent or active)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Close; after an exception mark this rank as failed at once."""
        if error is None:
            self.close()
        elif not self.closed:
            self.closed = True
            self._ranks.__exit__(kind, error, traceback)
            self._free()  # MPICH reports requests that exist at its end

    def __enter__(self) -> Self:
        return self
