"""A plugin for tests that every rank runs: `mpiexec -n P python -m pytest --with-mpi tests`.

A test fails on all ranks when it fails on one. A test that hangs is ended, with the stacks of its
threads, and takes the MPI job with it. Often a rank has failed, and the others wait for it in the
test: it says so in its log. `@pytest.mark.mpi(min_size=n)` is of pytest-mpi: it skips with fewer
ranks.

`--transport mpi` makes all collectives over messages; `@pytest.mark.shm(why)` skips there.
"""

import os
import time
import traceback
from collections.abc import Generator

import pytest
import unfinished
import watchdog
from mpi4py import MPI

_LATE_S = 10.0  # after a rank has failed in a test, for the others to come to its end

_world = MPI.COMM_WORLD.Dup()  # the tests' own traffic stays off COMM_WORLD


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--transport") == "mpi":
        os.environ["WAGMA_TRANSPORT"] = "mpi"


def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("shm")
    if marker is not None and item.config.getoption("--transport") == "mpi":
        pytest.skip(f"needs shared memory: {marker.args[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Ends a test on all ranks together, and with the same verdict."""
    error: BaseException | None = None
    result: object = None
    try:
        result = yield
    except BaseException as caught:
        error = caught
    wait_for_everyone(_world, error)
    text = None if error is None else f"{type(error).__name__}: {error}"
    failed = {r: t for r, t in enumerate(_world.allgather(text)) if t is not None}
    if error is not None:
        raise error
    if failed:
        pytest.fail(f"failed on ranks {sorted(failed)}: {failed[min(failed)]}", pytrace=False)
    return result


def wait_for_everyone(comm: MPI.Intracomm, error: BaseException | None) -> None:
    """A barrier that sleeps: idle ranks leave the cores to those that still work.

    Args:
        comm: the ranks.
        error: with which the test has failed on this one.
    """
    request = comm.Ibarrier()
    late = time.monotonic() + _LATE_S
    while not request.Test():
        if error is not None and time.monotonic() > late:
            shown = "".join(traceback.format_exception(error))
            watchdog.tell(f"\n{shown}{unfinished.alone(comm.rank, error)}\n")
            error = None
        time.sleep(0.001)


@pytest.fixture
def comm() -> MPI.Intracomm:
    return MPI.COMM_WORLD
