"""Waiting for the other ranks outside the trainings."""

from __future__ import annotations

import time

from mpi4py import MPI

__all__ = ["meet"]


def meet(comm: MPI.Intracomm) -> None:
    """A barrier whose waiting ranks sleep: the cores are for those that still work.

    MPICH spins while it waits, and there may be more ranks than cores.
    """
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.001)
