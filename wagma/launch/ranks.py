"""Waiting for the other ranks asleep, in commands whose ranks prepare something for seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["gather", "meet"]


def meet(comm: MPI.Intracomm) -> None:
    """A barrier whose waiting ranks sleep: the cores are for those that still work.

    MPICH spins while it waits, and there may be more ranks than cores.
    """
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.001)


def gather(comm: MPI.Intracomm, value: Any) -> list[Any]:
    """`value` of every rank, on every rank; those that wait for slower ones sleep."""
    meet(comm)
    return comm.allgather(value)
