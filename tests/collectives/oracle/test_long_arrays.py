"""mpi4py's tests of Allreduce with long arrays.

Theirs have an element per rank, for which wagma has a way of its own. Repeated, they are cut into
slices and chunks that the ranks share.
"""

import importlib
import unittest

import pytest
from borrowed import MODULES, cases_of
from communicator import Communicator
from mpi4py import MPI

pytestmark = pytest.mark.oracle


class LongArrays(Communicator):
    repeats = 25_000  # 100 to 200 kB for each rank


_world = LongArrays(MPI.COMM_WORLD)


def with_long_arrays(module: str, name: str) -> type[unittest.TestCase]:
    """The test of Allreduce of a case, alone: all others are MPI's."""
    attributes = {
        "__module__": __name__,
        "COMM": _world,
        "testAllreduce": cases_of(module)[name].testAllreduce,
    }
    return type(f"{module}_{name}", (importlib.import_module("mpiunittest").TestCase,), attributes)


globals().update(
    {
        f"{module}_{name}": with_long_arrays(module, name)
        for module in MODULES
        for name in ("TestCCOBufWorld", "TestCCOBufInplaceWorld")
    }
)


def teardown_module() -> None:
    _world.close()
