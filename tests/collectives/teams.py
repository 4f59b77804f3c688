"""Communicators of numbers of ranks beside those of the jobs."""

import os
from collections.abc import Iterator

from mpi4py import MPI


def teams(comm: MPI.Intracomm, *, least: int = 1) -> Iterator[MPI.Intracomm]:
    """Communicators of all ranks and, of eight, also of the first seven, six and five.

    Each rank gets those that it belongs to, of at least `least` ranks. Over messages only of five:
    the simulation has all numbers.
    """
    fewer = (5,) if os.environ.get("WAGMA_TRANSPORT") == "mpi" else (7, 6, 5)
    for size in (8, *fewer) if comm.size == 8 else (comm.size,):
        part = comm.Split(0 if comm.rank < size else MPI.UNDEFINED)
        if part != MPI.COMM_NULL:
            if size >= least:
                yield part
            part.Free()
