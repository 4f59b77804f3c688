"""The ranks of this job, whatever launched them: how they tell each other what they know."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from wagma.doctor.facts import RankFacts
from wagma.launch.environment import TORCHRUN
from wagma.launch.ranks import gather

if TYPE_CHECKING:
    from mpi4py import MPI

    from wagma.collectives import Handle


class Lost(Exception):  # noqa: N818
    """Ranks do not come, or end; says which."""


class Ranks(Protocol):
    """The ranks of the job. Every method is collective."""

    launcher: str  # what they meet through, see `Facts`
    rank: int  # this one
    node: int  # lowest rank of those that share memory with this one
    neighbours: list[int]  # ranks that share memory with this one, itself included; ascending

    def allgather(self, value: Any) -> list[Any]:
        """Return `value`, plain data, of every rank.

        Raises:
            Lost: not all came.
        """
        ...

    def handle(self, x: Any, timeout: float, *, everybody: bool) -> Handle:
        """Return a synchronous allreduce that sums over all ranks, or those of this node.

        Args:
            x: array that gives shape and dtype.
            timeout: in seconds.
            everybody: over all ranks.
        """
        ...

    def leave(self) -> None:
        """Leave; no collective call may follow."""
        ...


def ranks_of_job(own: RankFacts, timeout: float) -> tuple[Ranks, str]:
    """Return the ranks, and what was wrong with those that the environment names.

    Args:
        own: facts of this process.
        timeout: seconds until a rank that does not come is given up, where there is no MPI.
    """
    mpi = own.mpi
    if not mpi.error and "MPI" not in own.failed and mpi.size > 1:
        return _World(), ""
    # In an MPI world of one, several ranks can be told by nothing but what torchrun sets.
    size = own.environment.get(TORCHRUN.size, "")
    if not size.isdecimal() or int(size) < 2:
        return Alone(), ""
    if own.engine.error or "engine" in own.failed:
        return Alone(), f"{TORCHRUN.size} is {size}, but without the engine the ranks cannot meet"
    try:
        local = _Local(timeout)
        local.allgather(None)  # the variables may be left over from another job
    except (Lost, ValueError, NotImplementedError) as error:
        return Alone(), str(error)
    return local, ""


class Alone:
    """One process; needs no MPI."""

    launcher = ""
    rank = 0
    node = 0
    neighbours: list[int]

    def __init__(self) -> None:
        self.neighbours = [0]

    def allgather(self, value: Any) -> list[Any]:
        """Return `[value]`."""
        return [value]

    def handle(self, x: Any, timeout: float, *, everybody: bool) -> Handle:  # noqa: ARG002
        """Return a handle in a segment of its own."""
        from wagma.collectives import Handle, Options, Segment, arrays

        dtype = arrays.resolve(x, writable=False).dtype.code
        options = Options(average=False, timeout=timeout).with_environment()
        return Handle(Segment.create(options.engine(1, x.size, dtype)), 0, x, name="doctor")

    def leave(self) -> None:
        """Do nothing."""


class _World:
    """The ranks of MPI.COMM_WORLD; what they tell each other stays off it."""

    launcher = "MPI"

    def __init__(self) -> None:
        from mpi4py import MPI

        self._comm: MPI.Intracomm = MPI.COMM_WORLD.Dup()
        self.rank: int = self._comm.Get_rank()
        self._on_node = MPI.Intracomm(self._comm.Split_type(MPI.COMM_TYPE_SHARED))
        self.neighbours: list[int] = self._on_node.allgather(self.rank)
        self.node = self.neighbours[0]

    def allgather(self, value: Any) -> list[Any]:
        """Return `value` of every rank; waiting ranks sleep."""
        return gather(self._comm, value)

    def handle(self, x: Any, timeout: float, *, everybody: bool) -> Handle:
        """Return a handle over all ranks, or those of the node."""
        from wagma.collectives import SyncAllreduce

        comm = self._comm if everybody else self._on_node
        return SyncAllreduce(comm, x, average=False, timeout=timeout, name="doctor")

    def leave(self) -> None:
        """Wait for all ranks: one that has finished must not spin in MPI_Finalize."""
        self.allgather(None)
        self._on_node.Free()
        self._comm.Free()


class _Local:
    """The ranks that torchrun, or what sets the same variables, started on this machine.

    Args:
        timeout: seconds until a rank that does not come is given up.

    Raises:
        ValueError, NotImplementedError: the environment does not tell them.
    """

    launcher = "torchrun"

    def __init__(self, timeout: float) -> None:
        from wagma.collectives.rendezvous.job import Job

        self._timeout = timeout
        self._job = Job.of(os.environ)
        self.rank = self._job.rank
        self.node = 0
        self.neighbours = list(range(self._job.size))

    def allgather(self, value: Any) -> list[Any]:
        """Return `value` of every rank."""
        from wagma.collectives import WagmaError
        from wagma.collectives.rendezvous.local import local_ranks
        from wagma.collectives.rendezvous.patience import Patience

        try:
            meeting = local_ranks(self._job, Patience(timeout=self._timeout))
            try:
                return meeting.allgather(value, last=True)
            finally:
                meeting.leave(None)
        except (WagmaError, RuntimeError) as error:  # RuntimeError: the job's address is taken
            raise Lost(str(error)) from error

    def handle(self, x: Any, timeout: float, *, everybody: bool) -> Handle:  # noqa: ARG002
        """Return a handle over all ranks, which are on one machine."""
        from wagma.collectives import SyncAllreduce

        return SyncAllreduce(None, x, average=False, timeout=timeout, name="doctor")

    def leave(self) -> None:
        """Do nothing."""
