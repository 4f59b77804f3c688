"""An editable installation, built without any MPI."""

import re
import shlex

import pytest
from installation import CONNECT, Installation, output, packages_of, run

pytestmark = [pytest.mark.install, pytest.mark.long]


@pytest.fixture(scope="module")
def editable(tmp_path_factory, compiler) -> Installation:
    where = tmp_path_factory.mktemp("editable")
    return Installation(where, compiler, editable=True, WAGMA_MPI="none")


def test_without_an_mpi_the_command_that_builds_the_transport_is_told(editable):
    assert not list((editable.clone / "collectives").glob("_mpi_*"))
    done = run(editable.python, "-c", CONNECT, cwd=editable.empty)
    message = done.stderr.splitlines()[-1]
    assert message.startswith("ImportError: wagma was built without the transport over MPI")
    assert "MPICH Version:" in message
    told = shlex.split(re.search(r"WAGMA_MPICC=.*$", message)[0])
    variable, *command = told
    mpicc = variable.removeprefix("WAGMA_MPICC=")
    variables = {"WAGMA_MPICC": mpicc, "CC": editable.compiler}
    output(*command, cwd=editable.empty, **variables)
    assert '"wagma_transport"' in output(editable.python, "-c", CONNECT, cwd=editable.empty)


def test_editable_from_an_empty_folder(editable):
    assert editable.use(editable.empty) == packages_of(editable.clone)


def test_editable_from_the_clone(editable):
    assert editable.use(editable.clone) == packages_of(editable.clone)
