"""Errors that every rank has to raise alike."""

from collections.abc import Callable
from typing import Any

import pytest
from mpi4py import MPI


def error_everywhere(comm: MPI.Intracomm, make: Callable[[], Any], kind: type[Exception]) -> str:
    """The text that `make` raises; it has to be the same on every rank."""
    with pytest.raises(kind) as caught:
        make()
    texts = comm.allgather((type(caught.value).__name__, str(caught.value)))
    assert len(set(texts)) == 1, texts
    return str(caught.value)
