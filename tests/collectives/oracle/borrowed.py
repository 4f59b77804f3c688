"""mpi4py's tests of collectives on buffers, which take communicators that use wagma."""

import importlib
import sys
import unittest

from communicator import Communicator
from fetch import folder
from mpi4py import MPI

__all__ = ["MODULES", "cases_of"]

MODULES = ("test_cco_buf", "test_cco_nb_buf")
FOLDER = folder()
if not FOLDER.exists():
    raise FileNotFoundError(
        f"{FOLDER} is missing: `python tests/collectives/oracle/fetch.py` downloads it"
    )

# The tests take these as they are imported, and again to duplicate them.
MPI.COMM_SELF = Communicator(MPI.COMM_SELF)
MPI.COMM_WORLD = Communicator(MPI.COMM_WORLD)

# As mpi4py's own test/main.py does, unless it is told to test with GPUs.
sys.modules["cupy"] = sys.modules["numba"] = None  # type: ignore[assignment]
sys.path.append(str(FOLDER))


def cases_of(module: str) -> dict[str, type[unittest.TestCase]]:
    """The test cases of one of `MODULES`, by name."""
    return {
        name: kind
        for name, kind in vars(importlib.import_module(module)).items()
        if isinstance(kind, type) and issubclass(kind, unittest.TestCase)
    }
