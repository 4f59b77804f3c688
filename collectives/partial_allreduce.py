"""The collective that does not wait for stragglers, with the ranks of a job."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from . import _engine
from .creation import create
from .options import Arguments, Options
from .rendezvous.meeting import CollectiveMeta, Comm, Meeting

if TYPE_CHECKING:
    from typing import Unpack

    from ._engine import Channel, Handle, Segment

__all__ = ["PartialAllreduce"]


class PartialAllreduce(_engine.Handle, metaclass=CollectiveMeta):
    """Allreduce that starts when `quorum` members of a rank's group have arrived.

    ``allreduce(x)`` reduces version after version: the others of the group get at most `grace`
    seconds more, and a rank that comes later contributes by the rule `late` ("stale": what it had
    contributed last; it merges the newest result). Nobody waits for it, except at sync versions and
    when it is more than `window` versions behind. A counter may move on by more than one version in
    a call: loops are ``while coll.version < steps``.

    Creation, with keyword arguments that are the fields of `Options`, is collective over `comm`,
    and errors are raised on every rank::

        PartialAllreduce(comm, like, *, group_size=None, quorum="all", grace="auto", late="stale",
            missed="once", activation="group", grouping="dynamic", sync_period=None, average=True,
            window=None, transport="auto", timeout=None, stall_warning=60.0, seed=0, name=None,
            shm_limit=None, redo_after=None, progress="sleep:1000", progress_cpu=None)

    The environment overrides transport, stall_warning, redo_after, shm_limit, progress and
    progress_cpu: WAGMA_TRANSPORT and so on. The communicator is not used afterwards: ranks that
    share memory need none, others talk through a duplicate of it.

    Where a rank computes or sleeps with transport="mpi", a thread takes its part in the versions of
    the others (see `progress`); one that is stopped, as by SIGSTOP, makes them wait. The thread
    needs an MPI that was initialised with MPI_THREAD_MULTIPLE, which is mpi4py's default; with less
    a rank takes part in its calls only. `close` is then collective.

    Args:
        comm: mpi4py intracommunicator; None, which needs no MPI: the ranks that a launcher such as
            torchrun started on this machine and numbered in RANK and WORLD_SIZE. They find each
            other by WAGMA_JOB, or else by TORCHELASTIC_RUN_ID, MASTER_ADDR and MASTER_PORT, within
            one user, machine and network namespace. "auto": under torchrun what None is; under the
            launcher of an MPI MPI.COMM_WORLD; where RANK and WORLD_SIZE are set None; and else this
            process alone.
        like: array that gives shape and dtype, and this rank's first contribution: numpy, torch on
            the CPU, a C-contiguous buffer or DLPack.
        options: see `Options`.

    Raises:
        TypeError, ValueError: an argument is wrong, or not supported by this version; `comm` is
            None and no launcher has told the ranks.
        MismatchError: the ranks passed different arguments.
        SegmentError: /dev/shm is too small.
        TransportError: MPI refused something.
        ImportError: transport="mpi" was not built for the MPI that is loaded; says how.
        NotImplementedError: the launcher started ranks on several nodes, where they reach each
            other by an mpi4py communicator alone: pass it as `comm`.
        RuntimeError: MPI is not running, or does not know of the other ranks of the job; `comm` is
            None and another process has the job's address.
        PeerError, StallError: another rank ended; it did not come within `timeout`.

    Used as a context manager it is closed at the end; an exception marks this rank as failed. Left
    open at the exit of the interpreter, too. Thread-safety: different collectives may be used by
    different threads at once, one collective by one thread at a time.

    Attributes:
        options: the options in force, group_size and window filled in.
        transport: what "auto" came to: "shm" or "mpi".
    """

    _quorum: ClassVar[str] = "quorum"  # what users call it

    def __init__(self, comm: Comm, like: Any, **options: Unpack[Arguments]) -> None:
        self.met = True

        def make(over: Segment | Channel, meeting: Meeting, used: Options) -> Handle:
            super(PartialAllreduce, self).__init__(
                over, meeting.rank, like, name=used.name, watch=meeting.check
            )
            return self

        read = partial(Options.of, collective=type(self).__name__)
        used, engine = create(comm, like, options, read, make, quorum=self._quorum)
        self.options = replace(
            used, group_size=int(engine["group_size"]), window=int(engine["window"])
        )
