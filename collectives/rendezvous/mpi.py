"""Talking through an mpi4py communicator while a collective is made, and a duplicate for later."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..communicator import check_communicator, import_mpi
from ..errors import PeerError
from .link import encode
from .patience import Wait
from .reports import Report, as_error, common_report, describe_ranks, report

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["MPIRanks"]

_VALUE, _ENDED, _GIVEN_UP = range(3)  # tags: of `allgather`, of `tell`, of a rank that gave up
_NAMED = 256  # ranks of a communicator, at most, of which those that have not come are named
_kept: list[Any] = []  # what MPI may still write to, of ranks that have given up
_SHORTEST_S, _LONGEST_S = 2e-5, 1e-2  # between two looks for others
_LAST_WORDS_S = 0.1  # until what a rank sent before it failed has come
_SHORT = 1 / 16  # of the time that a wait has taken, at most, is slept until the next look


class MPIRanks:
    """The ranks of a communicator, on a duplicate of it that is freed at the end.

    No rank waits inside MPI for one that has not come: it looks, sleeps, and looks again, so that
    `wait` can warn and give up.

    Ranks are matched by the order of their calls: one that leaves early joins the next `allgather`
    of the others, and then the freeing.

    Args:
        comm: the communicator, in which an arrival is left behind if this rank gives up (_Arrival).
        wait: begins one wait for other ranks.

    Attributes:
        comm: the duplicate, for what is collective.

    Raises:
        what `check_communicator` does.
        PeerError: MPI says that a rank has died.
        StallError: the others have not come in time.
    """

    def __init__(self, comm: MPI.Intracomm, wait: Callable[[], Wait]) -> None:
        check_communicator(comm)
        mpi = import_mpi()
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self._wait = wait
        self._over = False
        self._telling: list[MPI.Request] = []
        self._heard: dict[int, Report] = {}
        self._unusable = False  # this rank has given up, or another one
        self.comm = comm
        self.comm = self._arrive(comm)
        self.allgather(None, last=False)  # a rank that has given up makes the duplicate, too
        node = self.comm.Split_type(mpi.COMM_TYPE_SHARED)
        self.on_this_node: int = node.Get_size()
        node.Free()

    def allgather(self, value: Any, *, last: bool) -> list[Any]:
        """`value` of every rank; `last`: the others will not call it again.

        Raises:
            PeerError, StallError: a rank has died; one has not come in time, for this rank or
                another one.
        """
        self._over = last
        content = encode((bool(self._telling), value))
        sent = self._send(content, _VALUE)
        values: dict[int, tuple[bool, Any]] = {self.rank: json.loads(content)}

        def missing() -> list[int]:
            for rank in self._others():
                if rank not in values and (taken := self._take(rank, _VALUE)) is not None:
                    values[rank] = taken
            return [rank for rank in self._others() if rank not in values]

        try:
            self._finish(missing, self._wait())
            self._finish(lambda: _unfinished(sent), self._wait())
        except BaseException as error:
            _kept.append(sent)
            self._give_up(error)
            raise
        # No message may be left when the communicator is freed.
        for rank, (has_told, _) in values.items():
            if has_told and rank != self.rank and rank not in self._heard:
                while (told := self._take(rank, _ENDED)) is None:  # it is on its way
                    pass
                self._heard[rank] = Report.of(told)
        for request in self._telling:
            request.wait()
        self._telling = []
        return [values[rank][1] for rank in range(self.size)]

    def tell(self, reason: Report) -> None:
        """Tell the ranks that wait elsewhere that this one has ended; `allgather` has to follow."""
        if not (self._over or self._unusable or self._telling):
            self._telling = self._send(encode(reason), _ENDED)

    def check(self) -> None:
        """Raises what another rank told; does not wait."""
        for rank in self._others():
            if rank not in self._heard and (told := self._take(rank, _ENDED)) is not None:
                self._heard[rank] = Report.of(told)
        if self._heard:
            raise as_error(common_report(self._heard, self.size))

    def leave(self, reason: Report | None) -> None:
        """The end; `reason`: what the others, who are going to call `allgather`, do not know."""
        if reason is not None and not (self._over or self._unusable):
            self.allgather((None, reason), last=True)
        if not self._unusable:  # the others would not free it
            self.comm.Free()

    def _others(self) -> Iterator[int]:
        return (rank for rank in range(self.size) if rank != self.rank)

    def _send(self, content: bytes, tag: int) -> list[MPI.Request]:
        kind = import_mpi().BYTE
        return [self.comm.Isend([content, kind], rank, tag) for rank in self._others()]

    def _take(self, rank: int, tag: int) -> Any:
        """What `rank` has sent; None: nothing has come."""
        status = import_mpi().Status()
        message = self.comm.Improbe(rank, tag, status)
        if message is None:
            return None
        content = bytearray(status.Get_count(import_mpi().BYTE))
        message.Recv([content, import_mpi().BYTE])
        return json.loads(content)

    def _arrive(self, comm: MPI.Intracomm) -> MPI.Intracomm:
        wait = self._wait()
        wait.check(())  # before anything is begun
        arrival = _Arrival.of(comm)
        self._finish(arrival.missing, wait, listen=False)
        return arrival.end(comm)

    def _finish(
        self, missing: Callable[[], Sequence[int] | None], wait: Wait, *, listen: bool = True
    ) -> None:
        """Waits asleep until `missing` returns an empty list; None: it is not known who is.

        A rank that ends the meeting with an error fails in its handle, too. It has said so first:
        that is looked for before its failure is believed.
        """
        mpi = import_mpi()
        lost: PeerError | None = None
        believed = math.inf
        while True:
            try:
                ranks = missing()
            except mpi.Exception as error:
                if error.Get_error_class() not in (mpi.ERR_PROC_FAILED, mpi.ERR_REVOKED):
                    raise
                whom = describe_ranks(_dead(self.comm))
                raise PeerError(f"{whom} died, and all ranks have to meet here") from error
            if ranks is not None and not ranks:
                return
            if listen:
                self._listen()
            if lost is not None and time.monotonic() >= believed:
                raise lost
            try:
                wait.check(ranks or ())
            except PeerError as error:
                if lost is None:
                    lost, believed = error, time.monotonic() + _LAST_WORDS_S
            time.sleep(min(max(_SHORTEST_S, _SHORT * wait.seconds), _LONGEST_S))

    def _listen(self) -> None:
        """Raises what another rank gave up with."""
        for rank in self._others():
            if (reason := self._take(rank, _GIVEN_UP)) is not None:
                raise as_error(common_report({rank: Report.of(reason)}, self.size))

    def _give_up(self, error: BaseException) -> None:
        """The others are told, who may wait longer; nobody can use the duplicate any more."""
        self._unusable = True
        _kept.append(self._send(encode(report(error)), _GIVEN_UP))


class _Arrival:
    """What a rank begins in a communicator to meet the others: it says that it is here.

    Until all have come nobody has a communicator of ours, and messages in the user's one could be
    taken by receives of the program. So a rank says it in collectives, which no receive takes: in
    the one of rank r only r sends a byte, to everybody. It ends here as soon as r has begun it,
    whoever else has. Libraries may let it wait for others as well; then more ranks seem missing.

    A rank that gives up leaves all that begun, and its next meeting in this communicator goes on
    with it: collectives match in the order in which ranks begin them, so those that come late and
    those that try again meet.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        size, rank, kind = comm.Get_size(), comm.Get_rank(), import_mpi().BYTE
        self._size = size
        self._here: dict[int, MPI.Request] = {}
        nothing, at_zero = [0] * size, [0] * size
        for sender in range(size) if size <= _NAMED else ():
            to = [int(other != rank) for other in range(size)] if sender == rank else nothing
            of = [int(other == sender != rank) for other in range(size)]
            self._here[sender] = comm.Ialltoallv(
                [bytearray(1), to, at_zero, kind], [bytearray(1), of, at_zero, kind]
            )
        self._duplicate, self._made = comm.Idup()

    @classmethod
    def of(cls, comm: MPI.Intracomm) -> _Arrival:
        """This rank's arrival in `comm`: the one that is begun, or a new one."""
        arrival = comm.Get_attr(_arrival_key())
        if not isinstance(arrival, cls):
            arrival = cls(comm)
            comm.Set_attr(_arrival_key(), arrival)
            _kept.append(arrival)
        return arrival

    def missing(self) -> list[int] | None:
        """The ranks that have not come; None: some have not, it is not known which."""
        for sender in [sender for sender, request in self._here.items() if request.Test()]:
            del self._here[sender]
        if not self._here and self._made.Test():
            return []
        return sorted(self._here) or None

    def end(self, comm: MPI.Intracomm) -> MPI.Intracomm:
        """Return the duplicate of `comm`, once nobody is missing."""
        comm.Delete_attr(_arrival_key())
        _kept.remove(self)
        return self._duplicate


@cache
def _arrival_key() -> int:
    key: int = import_mpi().Comm.Create_keyval()
    return key


def _dead(comm: MPI.Intracomm) -> list[int]:
    """Return the ranks of which MPI says that they have died."""
    dead = comm.Get_failed()
    return sorted(dead.Translate_ranks(list(range(dead.Get_size())), comm.Get_group()))


def _unfinished(requests: list[MPI.Request]) -> list[int] | None:
    return [] if import_mpi().Request.Testall(requests) else None
