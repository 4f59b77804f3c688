"""The wait-avoiding allreduce, created by the ranks of a job."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from . import _engine
from .creation import create
from .options import Arguments, Options, with_keywords
from .rendezvous.meeting import CollectiveMeta, Comm, Meeting

if TYPE_CHECKING:
    from typing import Unpack

    from ._engine import Channel, Handle, Segment


class PartialAllreduce(_engine.Handle, metaclass=CollectiveMeta):
    """Allreduce that starts when `quorum` members of a rank's group have arrived.

    ``allreduce(x)`` executes one version per call. When the quorum is present, the other members
    have at most `grace` seconds more. A later rank contributes by the rule `late`; with "stale" the
    result holds its last contribution, and it merges the newest result. No rank waits for a late
    one, except at sync versions and when it is more than `window` versions behind. A call may
    advance the counter by more than one version: write loops as ``while coll.version < steps``.

    Creation, with keyword arguments that are the fields of `Options`, is collective over `comm`,
    and errors are raised on every rank::

        PartialAllreduce(comm, like, *, group_size=None, quorum="all", grace="auto", late="stale",
            missed="once", activation="group", grouping="dynamic", sync_period=None, average=True,
            window=None, transport="auto", memory="auto", timeout=None, stall_warning=60.0, seed=0,
            name=None, shm_limit=None, redo_after=None, progress="sleep:1000", progress_cpu=None)

    The environment overrides transport, memory, stall_warning, redo_after, shm_limit, progress and
    progress_cpu: WAGMA_TRANSPORT and so on. The communicator is not used afterwards: ranks that
    share memory need none, others use a duplicate of it.

    With transport="mpi" a progress thread takes part in the versions of the others while a rank
    computes or sleeps (see `progress`); others wait for a stopped rank (SIGSTOP). The thread needs
    an MPI that was initialised with MPI_THREAD_MULTIPLE, which is mpi4py's default; otherwise a
    rank takes part during its own calls only. `close` is collective with transport="mpi".

    Args:
        comm: mpi4py intracommunicator; None, which needs no MPI: the ranks that a launcher such as
            torchrun started on this machine and numbered in RANK and WORLD_SIZE. They find each
            other by WAGMA_JOB, or else by TORCHELASTIC_RUN_ID, MASTER_ADDR and MASTER_PORT, within
            one user, machine and network namespace. "auto": under torchrun the same as None; under
            the launcher of an MPI MPI.COMM_WORLD; if RANK and WORLD_SIZE are set None; otherwise
            this process alone.
        like: array that gives shape, dtype and memory, and this rank's first contribution: numpy, a
            C-contiguous buffer, torch, CuPy, or any array with DLPack; in host memory on all ranks,
            or on all on NVIDIA GPUs (docs/gpu.md), each rank's arrays of all calls on one GPU.
        options: see `Options`.

    Raises:
        TypeError, ValueError: an argument is wrong, or not supported by this version; `comm` is
            None and no launcher has set the ranks.
        MismatchError: the ranks passed different arguments.
        SegmentError: /dev/shm is too small.
        TransportError: a call of MPI failed.
        ImportError: transport="mpi" was not built for the MPI that is loaded; the message has the
            command.
        DeviceError: the GPU, its driver or, for "direct" memory, NVRTC is not available.
        NotImplementedError: `comm` is None or "auto", and a launcher such as torchrun started ranks
            on several nodes: start them with mpiexec and pass MPI.COMM_WORLD, or start one job per
            node.
        RuntimeError: MPI is not running, or does not know the other ranks of the job; `comm` is
            None and another process has the job's address.
        PeerError, StallError: another rank ended; it did not arrive within `timeout`.

    As a context manager it is closed at the end; an exception marks this rank as failed, and so
    does the exit of the interpreter before `close`. Thread-safety: different collectives may be
    used by different threads at once, one collective by one thread at a time.

    Attributes:
        options: the options in force, with the values of group_size and window.
        transport: the transport in use: "shm" or "mpi".
        device: name of the GPU that has the arrays; None: they are in host memory.
        memory: "host"; for arrays on a GPU "direct" or "staged", see `Options`.
    """

    _quorum: ClassVar[str] = "quorum"  # name of that option for users

    @with_keywords(Options)
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
