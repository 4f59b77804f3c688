"""Messages of a meeting through an mpi4py communicator."""

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

_VALUE, _ENDED, _GIVEN_UP = range(3)  # tags: of `allgather`, of `tell`, of a rank that gave up
_NAMED = 256  # in larger communicators messages do not name the missing ranks
_kept: list[Any] = []  # requests and buffers of ranks that gave up: MPI may still write to them
_SHORTEST_S, _LONGEST_S = 2e-5, 1e-2  # bounds of the time between two polls
_LAST_REPORT_S = 0.1  # within this time the last report of a failed rank arrives
_POLL_SHARE = 1 / 16  # time between two polls, as a share of the wait so far


class MPIRanks:
    """The ranks of a communicator, on a duplicate of it that is freed at the end.

    No rank blocks inside MPI until a missing rank arrives: it polls and sleeps in turn, so that
    `wait` can warn and give up.

    Calls of the ranks match by their order: a rank that leaves early joins the next `allgather` of
    the others, and then frees the duplicate with them.

    Args:
        comm: the communicator. If this rank gives up, its arrival stays in there, see _Arrival.
        wait: begins one wait for other ranks.

    Attributes:
        comm: the duplicate, for collective calls.

    Raises:
        Whatever `check_communicator` raises.
        PeerError: MPI reports that a rank has died.
        StallError: the others have not arrived in time.
    """

    def __init__(self, comm: MPI.Intracomm, wait: Callable[[], Wait]) -> None:
        check_communicator(comm)
        mpi = import_mpi()
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self._wait = wait
        self._over = False
        self._telling: list[MPI.Request] = []
        self._reports: dict[int, Report] = {}
        self._unusable = False  # this rank or another one has given up
        self.comm = comm
        self.comm = self._arrive(comm)
        self.allgather(None, last=False)  # a rank that has given up makes the duplicate, too
        node = self.comm.Split_type(mpi.COMM_TYPE_SHARED)
        self.on_this_node: int = node.Get_size()
        node.Free()

    def allgather(self, value: Any, *, last: bool, brief: Any = None) -> list[Any]:
        """Return `value` of every rank; `last`, `brief`: see `meeting.Ranks`.

        Raises:
            PeerError, StallError: a rank has died; this rank or another one has waited too long.
        """
        self._over = last
        content = encode((bool(self._telling), value))
        others = content if brief is None else encode((bool(self._telling), brief))
        sent = self._send(others, _VALUE, to_0=content)
        values: dict[int, tuple[bool, Any]] = {self.rank: json.loads(content)}

        def missing() -> list[int]:
            for rank in self._others():
                if rank not in values and (message := self._receive(rank, _VALUE)) is not None:
                    values[rank] = message
            return [rank for rank in self._others() if rank not in values]

        try:
            self._finish(missing, self._wait())
            self._finish(lambda: _unfinished(sent), self._wait())
        except BaseException as error:
            _kept.append(sent)
            self._give_up(error)
            raise
        # No message may be left when the communicator is freed.
        for rank, (has_reported, _) in values.items():
            if has_reported and rank != self.rank and rank not in self._reports:
                while (message := self._receive(rank, _ENDED)) is None:  # it is on its way
                    pass
                self._reports[rank] = Report.of(message)
        for request in self._telling:
            request.wait()
        self._telling = []
        return [values[rank][1] for rank in range(self.size)]

    def tell(self, reason: Report) -> None:
        """Send `reason` to ranks that wait elsewhere for this one; `allgather` must follow."""
        if not (self._over or self._unusable or self._telling):
            self._telling = self._send(encode(reason), _ENDED)

    def check(self) -> None:
        """Raise the error that another rank has reported, if any; do not wait."""
        for rank in self._others():
            if rank not in self._reports and (message := self._receive(rank, _ENDED)) is not None:
                self._reports[rank] = Report.of(message)
        if self._reports:
            raise as_error(common_report(self._reports, self.size))

    def leave(self, reason: Report | None) -> None:
        """End the meeting; `reason`: an error for the others, which will call `allgather`."""
        if reason is not None and not (self._over or self._unusable):
            self.allgather((None, reason), last=True)
        if not self._unusable:  # the others would not free it
            self.comm.Free()

    def _others(self) -> Iterator[int]:
        return (rank for rank in range(self.size) if rank != self.rank)

    def _send(self, content: bytes, tag: int, to_0: bytes | None = None) -> list[MPI.Request]:
        kind = import_mpi().BYTE
        sent = dict.fromkeys(self._others(), content)
        if to_0 is not None and 0 in sent:
            sent[0] = to_0
        return [self.comm.Isend([each, kind], rank, tag) for rank, each in sent.items()]

    def _receive(self, rank: int, tag: int) -> Any:
        """Return the next message of `rank`; None: there is none."""
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
        """Poll until `missing` returns an empty list; None: some ranks, it is not known which.

        A rank that ends the meeting with an error reports it first and then fails in its handle.
        This waits for the report before it raises the failure.
        """
        mpi = import_mpi()
        lost: PeerError | None = None
        raise_at = math.inf
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
            if lost is not None and time.monotonic() >= raise_at:
                raise lost
            try:
                wait.check(ranks or ())
            except PeerError as error:
                if lost is None:
                    lost, raise_at = error, time.monotonic() + _LAST_REPORT_S
            time.sleep(min(max(_SHORTEST_S, _POLL_SHARE * wait.seconds), _LONGEST_S))

    def _listen(self) -> None:
        """Raise the error with which another rank gave up, if any."""
        for rank in self._others():
            if (reason := self._receive(rank, _GIVEN_UP)) is not None:
                raise as_error(common_report({rank: Report.of(reason)}, self.size))

    def _give_up(self, error: BaseException) -> None:
        """Send the error to the others, which may wait longer; the duplicate is unusable now."""
        self._unusable = True
        _kept.append(self._send(encode(report(error)), _GIVEN_UP))


class _Arrival:
    """The arrival of a rank in the user's communicator, announced by non-blocking collectives.

    Until all ranks have arrived there is no communicator of wagma's own, and receives of the
    program could match messages in the user's communicator. Collectives cannot be matched by a
    receive: in the one of rank r only r sends a byte, to every other rank. It completes here as
    soon as r has begun it. A library may make it wait for other ranks as well; then more ranks seem
    missing.

    A rank that gives up leaves these collectives active, and its next meeting in this communicator
    continues with them. Collectives match in the order in which ranks begin them, so late ranks and
    ranks that try again meet.
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
        """Return this rank's arrival in `comm`: the active one, or a new one."""
        arrival = comm.Get_attr(_arrival_key())
        if not isinstance(arrival, cls):
            arrival = cls(comm)
            comm.Set_attr(_arrival_key(), arrival)
            _kept.append(arrival)
        return arrival

    def missing(self) -> list[int] | None:
        """Return the ranks that have not arrived; None: some, it is not known which."""
        for sender in [sender for sender, request in self._here.items() if request.Test()]:
            del self._here[sender]
        if not self._here and self._made.Test():
            return []
        return sorted(self._here) or None

    def end(self, comm: MPI.Intracomm) -> MPI.Intracomm:
        """Return the duplicate of `comm`, once no rank is missing."""
        comm.Delete_attr(_arrival_key())
        _kept.remove(self)
        return self._duplicate


@cache
def _arrival_key() -> int:
    key: int = import_mpi().Comm.Create_keyval()
    return key


def _dead(comm: MPI.Intracomm) -> list[int]:
    """Return the ranks that MPI reports as failed."""
    dead = comm.Get_failed()
    return sorted(dead.Translate_ranks(list(range(dead.Get_size())), comm.Get_group()))


def _unfinished(requests: list[MPI.Request]) -> list[int] | None:
    return [] if import_mpi().Request.Testall(requests) else None
