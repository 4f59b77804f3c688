"""Collectives in which waiting ranks sleep, for commands that prepare for seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI


def meet(comm: MPI.Intracomm) -> None:
    """Enter a barrier in which waiting ranks sleep and leave their cores to working ranks.

    MPICH spins while it waits, and there may be more ranks than cores.
    """
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.001)


def gather(comm: MPI.Intracomm, value: Any) -> list[Any]:
    """Return the values of all ranks on every rank; waiting ranks sleep."""
    meet(comm)
    return comm.allgather(value)
