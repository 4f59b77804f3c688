"""mpi4py's tests of collectives on buffers, as they are."""

import pytest
from borrowed import MODULES, cases_of
from mpi4py import MPI

pytestmark = pytest.mark.oracle

globals().update(
    {f"{module}_{name}": case for module in MODULES for name, case in cases_of(module).items()}
)


def teardown_module() -> None:
    MPI.COMM_WORLD.close()
    MPI.COMM_SELF.close()
