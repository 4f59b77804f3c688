"""Waits that are to end in a StallError, and soon."""

from mpi4py import MPI


def soon(comm: MPI.Intracomm) -> float:
    """Seconds after which a wait for a rank that does not come ends.

    Creation has no longer than that for the ranks that do come: more of them than there are cores
    need a while.
    """
    return 0.3 + 0.1 * comm.size
