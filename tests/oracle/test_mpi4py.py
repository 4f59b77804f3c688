"""mpi4py's tests of collectives on buffers, as they are, with communicators that use wagma."""

import importlib
import sys
import unittest

from communicator import Communicator
from fetch import folder
from mpi4py import MPI

FOLDER = folder()
if not FOLDER.exists():
    raise FileNotFoundError(f"{FOLDER} is missing: `python tests/oracle/fetch.py` downloads it")

# The tests take these as they are imported, and again to duplicate them.
MPI.COMM_SELF = Communicator(MPI.COMM_SELF)
MPI.COMM_WORLD = Communicator(MPI.COMM_WORLD)

# As mpi4py's own test/main.py does, unless it is told to test with GPUs.
sys.modules["cupy"] = sys.modules["numba"] = None  # type: ignore[assignment]
sys.path.append(str(FOLDER))


def cases_of(module: str) -> dict[str, type]:
    return {
        f"{module}_{name}": kind
        for name, kind in vars(importlib.import_module(module)).items()
        if isinstance(kind, type) and issubclass(kind, unittest.TestCase)
    }


globals().update(cases_of("test_cco_buf"), **cases_of("test_cco_nb_buf"))


def teardown_module() -> None:
    MPI.COMM_WORLD.close()
    MPI.COMM_SELF.close()
