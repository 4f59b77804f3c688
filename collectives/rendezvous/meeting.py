"""Creation of a collective by all ranks of a job, over MPI or over sockets.

The ranks compare their arguments. On one node rank 0 then makes the shared memory and the others
open it; on several nodes all ranks connect a channel. Then all join. An error on any rank is raised
on every rank, with the same type and text, so that no rank waits for one that has given up. Ranks
talk through an mpi4py communicator (mpi.py) or, where that is None, through sockets of this machine
(local.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ...launch.environment import meeting_place
from .. import errors, transport, tuning
from .._engine import Channel, Handle, Segment
from ..communicator import check_communicator, import_mpi
from ..tuning import Schedule
from .job import ALONE, Job
from .link import plain
from .mpi import MPIRanks
from .patience import Patience, Wait
from .reports import Report, as_error, common_report, describe_ranks, report
from .tracing import Mark, mark

if TYPE_CHECKING:
    from mpi4py import MPI

# The ranks of a collective: a communicator, None or "auto".
Comm: TypeAlias = "MPI.Intracomm | Literal['auto'] | None"

_WHERE = "a call that all ranks make"
_EVERY_RANK = (
    "every rank of the communicator has to make the same collectives and optimizers, in one order"
)
_AS_OFTEN = (
    "each rank has to make such calls as often as the others, and before it closes: for an "
    "optimizer join(), load_state_dict(), add_param_group() and synchronize(buffers)"
)


class Ranks(Protocol):
    """The messages of a meeting.

    All ranks call `allgather` equally often. A rank that leaves with a report ends the meeting for
    all ranks.
    """

    rank: int
    size: int
    on_this_node: int  # how many of them can share memory with this one

    def allgather(self, value: Any, *, last: bool, brief: Any = None) -> list[Any]:
        """Return `value` of every rank; `last`: no rank will call it again.

        Where `brief` is given, on all ranks or on none, ranks other than 0 get it instead.
        """
        ...

    def check(self) -> None:
        """Raise the error with which another rank ended the meeting, if any; do not wait."""
        ...

    def leave(self, reason: Report | None) -> None:
        """End the meeting for this rank; `reason`: an error that the others do not know yet."""
        ...


def rank_and_size(comm: Comm) -> tuple[int, int]:
    """Return this rank and the number of ranks of a communicator, or of the launcher's job.

    Raises:
        TypeError, ValueError: `comm` is no intracommunicator; it is None, and no launcher has set
            the ranks.
        NotImplementedError: the job spans nodes.
        ImportError, RuntimeError: MPI is missing, is not running, or does not know the other ranks
            of the job.
    """
    ranks = _communicator_or_job(comm)
    if isinstance(ranks, Job):
        return ranks.rank, ranks.size
    check_communicator(ranks)
    return ranks.Get_rank(), ranks.Get_size()


def _communicator_or_job(comm: Comm) -> MPI.Intracomm | Job:
    """Return the communicator, or the job of ranks that meet without MPI."""
    if comm is None:
        return Job.of(os.environ)
    if not (isinstance(comm, str) and comm == "auto"):
        return comm
    place = meeting_place(os.environ)
    if place == "MPI":
        world: MPI.Intracomm = import_mpi().COMM_WORLD
        return world
    return Job.of(os.environ) if place == "variables" else ALONE


class Meeting:
    """All ranks while they make a collective; a context manager. Every method is collective.

    Args:
        comm: intracommunicator: the meeting duplicates it, and frees the duplicate at the end;
            None: the ranks that a launcher started on this machine; "auto": see `meeting_place`.
        patience: how long to wait for missing ranks, and when to warn.
        watch: called during waits; an exception that it raises ends the wait. Given: a call of a
            collective that exists; None: the creation of one.

    Raises:
        Whatever `rank_and_size` raises.
        PeerError, StallError: another rank ended, or did not arrive.
    """

    def __init__(
        self, comm: Comm, patience: Patience, watch: Callable[[], None] | None = None
    ) -> None:
        source = _communicator_or_job(comm)
        self._mpi = None
        if isinstance(source, Job):
            self._ranks: Ranks = _local_ranks(source, patience, watch)
        else:
            self._ranks = self._mpi = MPIRanks(source, partial(_wait, source, patience, watch))
        self.rank = self._ranks.rank
        self.size = self._ranks.size
        self._segment: Segment | None = None
        self._channel: Channel | None = None
        self._agreed_error = False  # every rank raises it: no report is needed
        self._peer_error: Exception | None = None  # raised by `check`

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None or self._agreed_error:
            self._ranks.leave(None)
        else:
            self._fail(report(error))
            self._ranks.leave(report(error))

    def exchange(self, function: Callable[[], object], *, last: bool = False) -> list[Any]:
        """Return the value of `function()` on every rank, by rank.

        The values are plain data (see `link.plain`). An error on any rank is raised on every rank;
        of several errors `common_report` chooses one. `last`: the meeting ends here.
        """
        return self._exchange(function, last=last, gather=False)

    def gather(self, function: Callable[[], object], *, last: bool = False) -> list[Any] | None:
        """Return the value of `function()` on every rank, by rank, on rank 0; None elsewhere.

        Values and errors are as in `exchange`.
        """
        gathered = self._exchange(function, last=last, gather=True)
        return gathered if self.rank == 0 else None

    def _exchange(self, function: Callable[[], object], *, last: bool, gather: bool) -> list[Any]:
        value: object = None
        error: BaseException | None = None
        try:
            value = plain(function())
        except BaseException as caught:  # KeyboardInterrupt too: the others must not wait
            error = caught
        # The error that `check` raised is another rank's, which reports it.
        own = None if error is None or error is self._peer_error else report(error)
        if error is not None:
            self._fail(own)
        brief = (None, own) if gather else None
        gathered = self._ranks.allgather((value, own), last=last, brief=brief)
        reports = {rank: Report.of(sent) for rank, (_, sent) in enumerate(gathered) if sent}
        self._agreed_error = bool(reports)
        if error is not None and not isinstance(error, Exception):
            raise error
        if reports:
            common = as_error(common_report(reports, self.size))
            if error is not None and type(error) is type(common) and str(error) == str(common):
                raise error  # with where it was raised, in one traceback
            raise common from error
        return [value for value, _ in gathered]

    def agree(self, function: Callable[[], Mapping[str, object]], *, last: bool = False) -> None:
        """Compare the named arguments that `function()` returns; `last`: the meeting ends here.

        Raises:
            MismatchError: an argument differs between ranks; the message names it and its values.
        """

        def with_text() -> dict[str, tuple[object, str]]:
            return {name: (value, repr(value)) for name, value in function().items()}

        gathered = self.exchange(with_text, last=last)
        for name, (value, _) in gathered[0].items():
            if all(arguments[name][0] == value for arguments in gathered):
                continue
            holders: dict[str, list[int]] = {}
            for rank, arguments in enumerate(gathered):
                holders.setdefault(arguments[name][1], []).append(rank)
            values = "; ".join(
                f"{text} on {describe_ranks(ranks)}" for text, ranks in holders.items()
            )
            self._agreed_error = True
            raise errors.MismatchError(f"{name} differs between ranks: {values}")

    def transport(self, wanted: str) -> str:
        """Return the transport of the handles, "shm" or "mpi"; every rank passes the same `wanted`.

        Raises:
            ValueError: these ranks cannot use `wanted`.
        """
        here = self._ranks.on_this_node
        on_one_node = here == self.size  # on every rank, or on none
        if wanted == "auto":
            return "shm" if on_one_node else "mpi"
        if wanted == "mpi" and self._mpi is None:
            self._agreed_error = True
            raise ValueError(
                "transport='mpi' and comm=None: messages go over MPI, so start the ranks with "
                "mpiexec and pass comm=MPI.COMM_WORLD (from mpi4py import MPI), or leave transport "
                "(WAGMA_TRANSPORT) at 'auto'"
            )
        if wanted == "shm" and not on_one_node:
            most = max(self.exchange(lambda: here))
            self._agreed_error = True
            raise ValueError(
                f"transport='shm', but the communicator's {self.size} ranks are on several nodes, "
                f"at most {most} on each: leave transport (WAGMA_TRANSPORT) at 'auto' or use "
                "'mpi', or make one collective per node over "
                "comm.Split_type(MPI.COMM_TYPE_SHARED)"
            )
        return wanted

    def segment(self, options: Mapping[str, int | float]) -> Segment:
        """Return the shared memory of these ranks: rank 0 makes it, the others open it.

        From here on a rank that fails in the meeting is marked as failed in the segment as well.

        Raises:
            ValueError, TypeError: an option is out of its range.
            SegmentError: the system refused the memory.
        """
        try:
            return self._open_segment(options, None)
        except errors.SegmentError:
            # The others find no segment without a name if ranks are in PID namespaces (containers)
            # of their own. All ranks know the name before it exists: any of them can remove it.
            name = self.exchange(lambda: f"/wagma-{os.getpid()}-{os.urandom(8).hex()}")[0]
        try:
            return self._open_segment(options, name)
        finally:
            with suppress(OSError):
                Path("/dev/shm", name[1:]).unlink()

    def _open_segment(self, options: Mapping[str, int | float], name: str | None) -> Segment:
        """Make the segment on rank 0, with this name or none, and open it on the others."""
        self._segment = None

        def create() -> str:
            if self.rank == 0:
                self._segment = Segment.create(options, name)
            return "" if self._segment is None else self._segment.address()

        address = self.exchange(create)[0]

        def open_() -> None:
            if self.rank != 0:
                self._segment = Segment.open(options, address)

        self.exchange(open_)
        assert self._segment is not None
        return self._segment

    def channel(
        self, options: Mapping[str, int | float], schedule: Schedule | None = None
    ) -> Channel:
        """Return a channel for messages between these ranks.

        From here on a rank that fails in the meeting notifies the ranks that wait in a handle.

        Args:
            options: of the engine.
            schedule: how ranks exchange data; None: the schedule that rank 0 finds, see `tuning`.

        Raises:
            ValueError, TypeError: an option is out of its range.
            ImportError: wagma was not built for the MPI that is loaded.
            TransportError: a call of MPI failed.
        """
        mpi = self._mpi
        assert mpi is not None

        def load() -> dict[str, int]:
            transport.load()
            if self.rank != 0:
                return {}
            used = schedule or tuning.find(self.size, self._ranks.on_this_node)
            return used.options()

        def connect() -> None:
            try:
                capsule = transport.connect(mpi.comm)
            except RuntimeError as error:
                raise errors.TransportError(str(error)) from error
            self._channel = Channel(used, capsule)

        # A rank that cannot load it would not call connect(), which is collective.
        used = {**options, **self.exchange(load)[0]}
        self.exchange(connect)
        assert self._channel is not None
        return self._channel

    def join(
        self,
        transport: str,
        options: Mapping[str, int | float],
        make: Callable[[Segment | Channel], Handle],
    ) -> Handle:
        """Make a handle on every rank, or on none: `make` makes it over a segment or a channel.

        Raises:
            Whatever `segment` and `channel` raise, and `make` on any rank.
        """
        over = self.segment(options) if transport == "shm" else self.channel(options)
        mark = self.mark()
        made: list[Handle] = []
        try:
            self.exchange(lambda: made.append(make(over)), last=True)
        except BaseException:
            for handle in made:
                handle.fail()
            raise
        handle = made[0]
        if mark is not None:
            handle._label_trace(*mark)
        return handle

    def mark(self) -> Mark | None:
        """Return the label of this rank's timeline; None: no rank with a channel writes one."""
        if self._channel is None or self._mpi is None:
            return None
        return mark(self._mpi.comm, self.exchange)

    def check(self) -> None:
        """Raise the error with which another rank ended the meeting, if any; do not wait."""
        try:
            self._ranks.check()
        except Exception as error:
            self._peer_error = error
            raise

    def _fail(self, reason: Report | None) -> None:
        """End the waits of other ranks for this one, inside a handle."""
        if self._segment is not None:
            self._segment.fail(self.rank)
        if self._channel is not None and self._mpi is not None and reason is not None:
            self._mpi.tell(reason)


def _wait(comm: MPI.Intracomm, patience: Patience, watch: Callable[[], None] | None) -> Wait:
    """Begin a wait for the ranks of `comm`."""
    if watch is None:
        return Wait(patience, comm.Get_rank(), hint=_EVERY_RANK)
    return Wait(patience, comm.Get_rank(), watch, what=_WHERE, hint=_AS_OFTEN)


def _local_ranks(job: Job, patience: Patience, watch: Callable[[], None] | None) -> Ranks:
    """Return the ranks that a launcher started. MPI's ranks need no import of sockets."""
    from .local import local_ranks

    return local_ranks(job, patience, watch)


class CollectiveMeta(type):
    """Metaclass of collectives: a constructor that fails on one rank fails on every rank.

    If a rank passes wrong arguments, the other ranks already wait for it in the meeting: this one
    joins them to report its error. A constructor sets the attribute `met` before it meets the
    others by itself.
    """

    @property
    def __signature__(cls) -> Signature:
        """Return the constructor's signature, which help() shows instead of that of `__call__`."""
        kind: Any = cls
        constructor = signature(kind.__init__)
        _, *parameters = constructor.parameters.values()
        return constructor.replace(parameters=parameters)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an instance."""
        kind: Any = cls
        made = kind.__new__(kind, *args, **kwargs)
        try:
            kind.__init__(made, *args, **kwargs)
        except Exception as error:
            if getattr(made, "met", False) or not (args or "comm" in kwargs):
                raise
            wrong = error
        else:
            return made

        def fail() -> None:
            raise wrong

        with Meeting(args[0] if args else kwargs["comm"], Patience.of(kwargs)) as meeting:
            return meeting.exchange(fail)
