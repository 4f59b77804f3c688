"""Waits that are to end in a StallError, and soon."""

from mpi4py import MPI


def soon(comm: MPI.Intracomm) -> float:
    """Seconds after which a wait for a rank that does not come ends.

    Creation has no longer than that for the ranks that do come: where the cores are busy, one of
    them comes a second after another.
    """
    return 2.5 + 0.1 * comm.size
