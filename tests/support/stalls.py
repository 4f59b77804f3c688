"""Waits for a rank that does not come: they end soon, and say for whom they were."""

import pytest
from mpi4py import MPI

from wagma.collectives import Request


def soon(comm: MPI.Intracomm) -> float:
    """Seconds after which a wait for a rank that does not come ends.

    Creation has no longer than that for the ranks that do come: where the cores are busy, one of
    them comes a second after another.
    """
    return 2.5 + 0.1 * comm.size


def overdue(request: Request, seconds: float) -> str:
    """What a wait of so many seconds in vain says, once this rank's own array is there.

    A GPU may take longer to produce it; only a wait publishes it then.
    """
    while True:
        with pytest.raises(TimeoutError) as caught:
            request.wait(seconds)
        if "(phase device)" not in str(caught.value):
            return str(caught.value)
