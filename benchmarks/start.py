"""The common start of the ranks of a communicator: how they share memory, or else clocks."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from wagma.collectives.communicator import import_mpi
from wagma.collectives.rendezvous import clock
from wagma.launch.agreement import agreed
from wagma.launch.together import check_transport, everywhere

from . import _loop
from .settings import transport

if TYPE_CHECKING:
    from mpi4py import MPI

S = TypeVar("S", bound=Any)  # a dataclass with a transport

SHARED_MARGIN_NS = 3000  # a few turns of the waiting loop ...
SHARED_MARGIN_RANK_NS = 100  # ... which look at the words of all ranks
MESSAGE_MARGIN_NS = 50_000  # doubled whenever a rank knew of a start too late
MESSAGE_MARGIN_MAX_NS = 2_000_000
YIELD_S = 0.001  # a rank without a core of its own yields so long for messages, then sleeps
DOZE_S = 0.0001


class Start(_loop.Meeting):
    """Lets the ranks of `comm` meet and start together; a context manager. Collective.

    On one node they meet in shared memory and have one clock. On several, MPI tells when the last
    one came, and clocks are those of rank 0 as this rank's estimate has it (`clock.compare`). No
    rank waits for one that has left (`close`) or died on the same node.

    Args:
        comm: duplicated where messages are needed.
        crowded: ranks have no core each: they yield or sleep instead of spinning.
        offset_ns: shifts this rank's clock, to see that it is found out; needs shared=False.
        shared: the ranks share memory; None: if they do.
        timeout: seconds for which ranks wait for one that does not come; None: for ever.

    Attributes:
        shared: whether they share memory.
        error_ns: by how much this rank's clock may differ from rank 0's.
        missed: starts that had gone by when this rank knew of them, crowded ones left out.

    Raises:
        OSError: shared=True, and there is no memory that all ranks could map.
        ValueError: an offset of a clock that is shared.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        *,
        crowded: bool,
        offset_ns: int = 0,
        shared: bool | None = None,
        timeout: float | None = None,
    ) -> None:
        if offset_ns and shared is not False:
            raise ValueError(f"offset_ns={offset_ns}: ranks with shared memory share their clock")
        rank, size = comm.Get_rank(), comm.Get_size()
        self._comm: MPI.Intracomm | None = None
        self._timeout = timeout
        self._seen_missed = 0
        self.error_ns = 0
        memory, failure = None, "the ranks are on several nodes"
        if shared or (shared is None and one_node(comm)):
            memory, failure = _shared_memory(comm)
        if shared and memory is None:
            raise OSError(f"shared=True: {failure}")
        self.shared = memory is not None
        super().__init__(
            memory,
            rank,
            size,
            crowded=crowded,
            margin_ns=SHARED_MARGIN_NS + SHARED_MARGIN_RANK_NS * size
            if self.shared
            else MESSAGE_MARGIN_NS,
            correction_ns=offset_ns,
            timeout=timeout,
        )
        self._processes = _processes(comm) if self.shared else []
        if not self.shared:
            self._comm = comm.Dup()
            found = clock.compare(self._comm, self.now)
            self.correction_ns += found.offset_ns
            self.error_ns = found.error_ns

    def drift(self) -> int:
        """Return the drift of this rank's clock from rank 0's, ns; 0 if they share one.

        Collective. The clock is not corrected by it, and it may be wrong by the sum of `error_ns`
        and half a round trip now.
        """
        return 0 if self._comm is None else clock.compare(self._comm, self.now).offset_ns

    def close(self) -> None:
        """Leave for good. Collective if there is no shared memory."""
        self.leave()
        if self._comm is not None:
            self._comm.Free()
            self._comm = None

    def agree(self, now: int) -> int:
        """Return when the last rank came, by messages; widen the margin after a missed start."""
        if self._comm is None:
            raise ValueError("the start was closed")
        mine = np.array([now, self.missed - self._seen_missed], np.int64)
        all_ = np.empty_like(mine)
        self._seen_missed = self.missed
        request = self._comm.Iallreduce(mine, all_, op=import_mpi().MAX)
        began = time.monotonic()
        while not request.Test():
            waited = time.monotonic() - began
            if self._timeout is not None and waited > self._timeout:
                raise TimeoutError(f"not all ranks have come for {waited:.1f} s")
            if self.crowded:
                time.sleep(DOZE_S if waited > YIELD_S else 0)
        if all_[1]:
            self.margin_ns = min(2 * self.margin_ns, MESSAGE_MARGIN_MAX_NS)
        return int(all_[0])

    def check(self, rank: int) -> None:
        """Raise PeerLeftError if the process of `rank` is dead."""
        process = self._processes[rank]
        if process is not None and not _same_process(*process):
            raise _loop.PeerLeftError(
                f"rank {rank} (process {process[0]}) is dead, rank {self.rank} waits for it"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.leave()  # the others may not be on their way to freeing the communicator


def agree(comm: MPI.Intracomm, settings: S) -> tuple[S, str]:
    """Return the settings of all ranks, and the transport of wagma's messages; collective.

    WAGMA_TRANSPORT overrides the settings' transport, as in wagma itself: the user who runs a
    program decides over its author.

    Raises:
        InputError: the settings are not those of all ranks, or the transport cannot be had.
    """
    used: Any = os.environ.get("WAGMA_TRANSPORT", settings.transport)
    settings = agreed(comm, replace(settings, transport=used))
    together = one_node(comm)
    everywhere(comm, lambda: check_transport(settings.transport, one_node=together))
    return settings, transport(settings.transport, one_node=together)


def one_node(comm: MPI.Intracomm) -> bool:
    """Return whether all ranks can share memory; collective."""
    node = comm.Split_type(import_mpi().COMM_TYPE_SHARED)
    alone = node.Get_size() == comm.Get_size()
    node.Free()
    return bool(comm.allreduce(int(alone), op=import_mpi().MIN))


def _shared_memory(comm: MPI.Intracomm) -> tuple[mmap.mmap | None, str]:
    """Return memory that all ranks share; None if one of them cannot have it, and why."""
    nbytes = _loop.words_of(comm.Get_size())
    name, failure, memory = "", "", None
    try:
        if comm.Get_rank() == 0:
            descriptor, name = tempfile.mkstemp(prefix="wagma-benchmark-", dir="/dev/shm")
            try:
                os.posix_fallocate(descriptor, 0, nbytes)
            finally:
                os.close(descriptor)
    except OSError as error:
        failure = str(error)
    try:
        usable = comm.bcast(bool(name) and not failure)
        path = comm.bcast(name)
        try:
            if usable:
                with Path(path).open("r+b") as file:
                    memory = mmap.mmap(file.fileno(), nbytes)
        except OSError as error:
            failure = str(error)
        failures = [text for text in comm.allgather(failure) if text]
    finally:  # also when a signal ends this rank's waiting for the others
        if name:
            Path(name).unlink()
    return (None, failures[0]) if failures else (memory, "")


def _processes(comm: MPI.Intracomm) -> list[tuple[int, str] | None]:
    """Return the process and start time of each rank; None where it is not visible from here."""
    me = os.getpid()
    gathered = comm.allgather((Path("/proc/self/ns/pid").readlink(), me, _started(me)))
    here = gathered[comm.Get_rank()][0]
    return [(pid, started) if space == here else None for space, pid, started in gathered]


def _started(pid: int) -> str:
    """Return when the process was started, in the kernel's words; "" if it is dead."""
    try:
        # After the name, which is in parentheses and may hold anything: the fields from the third.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _same_process(pid: int, started: str) -> bool:
    return _started(pid) == started
