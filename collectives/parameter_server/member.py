"""Ranks that hold the parameters, and learners that send them gradients, over messages.

A learner offers a gradient to the first server, which decides (selection.py) and answers: send it,
or take newer parameters instead. What the first server decided the others carry out in the same
order, each for its part of the arrays, so that a version is made of the same gradients everywhere.
No array is sent that nobody asked for: a rank that computes need not take part in anything.

Control messages are a few numbers, arrays are sent by `Transfer`. No rank waits inside MPI.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import IntEnum
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

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

__all__ = ["Code", "Holder", "ParameterServer", "Shard"]

Bytes = npt.NDArray[np.uint8]
CONTROL, NEWS, GRADIENT, MODEL = range(4)  # tags
NUMBERS = 5  # of a control message
_LOOK_S = 0.02  # between two looks whether a rank has died


class Code(IntEnum):
    """What a control message says; the numbers behind it are in brackets."""

    OFFER = 1  # by a learner: a gradient (version, weight, 1: there is none, 1: it wants to stop)
    PAUSE = 2  # by a learner: it has left its loop
    LEFT = 3  # its sender is closed
    TAKE = 4  # by the first server: send it (staleness, 1: parameters follow)
    GIVE = 5  # parameters come (version, `Unused` of what was offered, 1: all stop there)
    ENDED = 6  # by the first server: no version is possible any more (a rank that is gone)
    # To other servers: carry out what the first one does; by them: whether that was possible.
    RECEIVE = 7  # the gradient of a learner (learner)
    ADD = 8  # what was received (weight)
    APPLY = 9
    DROP = 10
    SEND = 11  # the parameters to a rank (rank, version)
    RETURN = 12  # to what called (version, 1: all stop)
    RECEIVED = 13  # (1: yes, 1: it wants to stop)


class Shard(NamedTuple):
    """The part of a server, in bytes.

    Attributes:
        model: (start, end) of its parameters.
        gradient: (start, end) of the parts of a gradient that it needs.
    """

    model: tuple[int, int]
    gradient: tuple[tuple[int, int], ...]


class Holder(Protocol):
    """What a server does with gradients; it is called in the thread that calls the server."""

    def add(self, gradient: Bytes, weight: float) -> None:
        """Add a gradient to those of the coming version."""

    def apply(self) -> None:
        """Step with their mean, and begin a new sum."""

    def drop(self) -> None:
        """Begin a new sum."""


class ParameterServer(ABC):
    """What learners and servers have in common.

    Making it is collective over `comm`, of which it uses a duplicate; `close` returns when the
    ranks that it talks to have closed theirs.

    Args:
        comm: mpi4py intracommunicator; its last `len(shards)` ranks are the servers.
        model: the parameters, as bytes; sent and received in place.
        shards: of the servers, in order.
        ranks: a collective of all ranks, by which deaths are noticed; it is closed with this one.
        patience: with which ranks are waited for.

    Attributes:
        rank: this one.
        size: number of ranks.
        version: of the parameters that this rank has.
        hint: what warnings about waits that last say besides.
        waited: seconds that this rank has waited for others so far.
        wants_stop: returns whether this rank wants the training to end, at any moment.
        stopped: all ranks are told to stop at the version that this one has.

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
        self._left: set[int] = set()  # ranks that have closed theirs
        self._sent: list[MPI.Request] = []
        self._transfers: dict[tuple[int, int, bool], Transfer] = {}
        self._looked = 0.0
        self._gone: list[int] = []
        made, request = comm.Idup()
        wait = Wait(self._patience, self.rank, lambda: self._need(self.lost()))
        while not request.Test():
            wait.check(())
            nap(wait.seconds)
        self._comm: MPI.Intracomm = made

    # ---- messages --------------------------------------------------------------------------------
    def _tell(self, rank: int, code: Code, *numbers: float, tag: int = CONTROL) -> None:
        content = np.zeros(NUMBERS)
        content[: 1 + len(numbers)] = code, *numbers
        self._sent = [request for request in self._sent if not request.Test()]
        self._sent.append(self._comm.Isend(content, rank, tag))

    def _heard(self, rank: int | None = None, tag: int = CONTROL) -> tuple[int, list[float]] | None:
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
        """Return what moves the part of a shard of `memory`, made once."""
        key = (peer, tag, sends)
        if key not in self._transfers:
            its = self._shards[shard]
            spans = its.gradient if tag == GRADIENT else (its.model,)
            self._transfers[key] = Transfer(self._comm, memory, spans, peer, tag, sends=sends)
        return self._transfers[key]

    def _free(self) -> None:
        """Let go of all transfers."""
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
        if now - self._looked >= _LOOK_S:
            self._looked = now
            self._gone = self._ranks.lost()
        return self._gone

    def _check_lost(self) -> None:
        """Raise PeerError if a server is lost."""
        self._need([rank for rank in self._servers if rank in self.lost() or rank in self._left])

    def _need(self, lost: Sequence[int]) -> None:
        """Raise PeerError if there are any in `lost`, ranks that this one cannot do without."""
        if lost:
            held = all(rank in self._servers for rank in lost)
            raise PeerError(
                f"{describe_ranks(lost)} failed, died or left"
                f"{', and held parameters' if held else ''}: make a new optimizer without it, from "
                "a checkpoint"
            )

    def _finish(self, transfers: Sequence[Transfer], what: str) -> list[int]:
        """Wait until `transfers` have ended; return the ranks of those that cannot: it is lost."""
        wait = self._wait(what)

        def watch() -> list[int]:
            wait.check(sorted({transfer.peer for transfer in transfers if transfer.active}))
            return self.lost()

        return sorted({transfer.peer for transfer in finish(transfers, watch)})

    def _wait(self, what: str, hint: str | None = None) -> Wait:
        hint = hint or self.hint or "every rank has to take part in the training until it closes"
        return Wait(self._patience, self.rank, self._check_lost, what=what, hint=hint)

    def _await(self, rank: int, what: str) -> list[float]:
        """Wait for the next control message of `rank`, and return it."""
        began, wait = time.monotonic(), self._wait(what)
        while (heard := self._heard(rank)) is None:
            wait.check([rank])
            self._progress()
            nap(wait.seconds)
        self.waited += time.monotonic() - began
        return heard[1]

    def _progress(self) -> None:
        """Move on the transfers that are under way."""
        for transfer in self._transfers.values():
            transfer.test()

    # ---- the end ---------------------------------------------------------------------------------
    def stats(self) -> Stats:
        """Return counters of the collective that notices deaths, which makes no versions."""
        return self._ranks.stats()

    @abstractmethod
    def _partners(self) -> Sequence[int]:
        """Return the ranks that this one talks to: those that it sends to, and receives from."""

    def close(self) -> None:
        """Leave; return when the ranks that this one talks to have left, or are lost.

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
        orderly = False
        try:
            while (here := [r for r in partners if r not in self._left | set(self.lost())]) or (
                not self._is_quiet()
            ):
                while (heard := self._heard()) is not None:
                    self._take_leave(*heard)
                wait.check(here)
                nap(wait.seconds)
            orderly = not self._ranks.lost()
        finally:
            self._free()
            if not orderly:  # over messages closing would wait for all ranks
                self._ranks.fail()
        if orderly:
            self._ranks.close()
            self._comm.Free()

    def _take_leave(self, rank: int, content: Sequence[float]) -> None:
        if content[0] == Code.LEFT:
            self._left.add(rank)
        elif content[0] == Code.OFFER:  # by a rank that goes on, and needs this one
            raise PeerError(
                f"{describe_ranks([rank])} has not left its loop, and the server rank {self.rank} "
                "is closed: call synchronize() on all ranks before the end"
            )

    def _is_quiet(self) -> bool:
        """Return whether nothing of this rank's is under way to a rank that lives."""
        while self._heard(tag=NEWS) is not None:
            pass
        self._sent = [request for request in self._sent if not request.Test()]
        active = [t for t in self._transfers.values() if t.test() and t.peer not in self._gone]
        return bool(self._gone) or not (self._sent or active)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception the others learn at once that this rank has failed."""
        if error is None:
            self.close()
        elif not self.closed:
            self.closed = True
            self._ranks.__exit__(kind, error, traceback)
            self._free()  # MPICH lists at its end all that are left

    def __enter__(self) -> Self:
        return self
