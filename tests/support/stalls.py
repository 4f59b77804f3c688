"""Waits for a rank that does not come: they end soon, and say for whom they were."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from mpi4py import MPI

from wagma.collectives import Request
from wagma.collectives.rendezvous.patience import Patience


def soon(comm: MPI.Intracomm) -> float:
    """Seconds after which a wait for a rank that does not come ends.

    Without `patient_creation` the ranks that do come have no longer than that to meet: where the
    cores are busy, one of them comes a second after another.
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


@pytest.fixture
def patient_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranks wait for each other as long as it takes while they make a collective.

    The timeout is then that of its calls alone: no machine is too busy for its creation. An
    optimizer's later meetings and a parameter server's calls have none, either.
    """
    of = Patience.of

    def patient(options: Mapping[str, Any]) -> Patience:
        return of(options)._replace(timeout=math.inf)

    monkeypatch.setattr(Patience, "of", patient)
