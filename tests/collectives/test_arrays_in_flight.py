"""Whose an array is while its version is under way, over memory and over messages."""

import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from stalls import patient_creation, soon  # noqa: F401 (a fixture)

from wagma.collectives import GroupAllreduce, HandleError, PartialAllreduce, PeerError, StallError

pytestmark = pytest.mark.mpi

# Eager, and in chunks.
COUNTS = pytest.mark.parametrize("count", [16, 4096, 300_000])


@COUNTS
def test_a_posted_array_changes_in_wait_only(comm: MPI.Intracomm, count: int) -> None:
    x = np.full(count, 1.0 + comm.rank, np.float32)
    with GroupAllreduce(comm, x, group_size=comm.size, grace=20.0) as coll:
        request = coll.iallreduce(x)
        time.sleep(0.2)  # the others' contributions come meanwhile
        assert (x == 1.0 + comm.rank).all()
        request.wait()
        assert coll.version == 1
    assert comm.size == 1 or x[0] != 1.0 + comm.rank or comm.size % 2  # of odd sizes the middle


@COUNTS
@pytest.mark.parametrize("quorum", ["all", 1])
def test_nobody_writes_to_memory_after_a_dropped_request(
    comm: MPI.Intracomm, quorum: Any, count: int
) -> None:
    x = np.ones(count, np.float32)
    grace: Any = "auto" if quorum == "all" else 0.2
    coll = PartialAllreduce(comm, x, quorum=quorum, grace=grace, timeout=20)
    if comm.rank == 0:
        request = coll.iallreduce(x)
        with pytest.warns(ResourceWarning):
            del request
            gc.collect()
        del x
        others = [np.full(count, 7, np.float32) for _ in range(4)]  # where x was, if it is gone
        comm.barrier()
        comm.barrier()
        assert all((other == 7).all() for other in others)
    else:
        comm.barrier()
        coll.allreduce(x)
        assert (x == 1).all()
        comm.barrier()
    coll.fail()


@pytest.mark.usefixtures("patient_creation")
def test_an_array_lives_on_after_an_error_over_messages(comm: MPI.Intracomm) -> None:
    if comm.size == 1:
        pytest.skip("nobody to wait for")
    x = np.ones(300_000, np.float32)
    coll = PartialAllreduce(comm, x, timeout=soon(comm))
    if comm.rank == 0:
        with pytest.raises(StallError):
            coll.allreduce(x)
    comm.barrier()
    if comm.rank > 0:
        with pytest.raises(PeerError):
            coll.allreduce(x)
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert (alive() is not None) == (coll.transport == "mpi")
    y = np.ones(300_000, np.float32)
    with pytest.raises(HandleError):  # broken: messages have nothing of this one
        coll.allreduce(y)
    alive = weakref.ref(y)
    del y
    gc.collect()
    assert alive() is None
    coll.fail()


def test_statistics_are_read_while_another_thread_waits(comm: MPI.Intracomm) -> None:
    x = np.ones(70_000, np.float32)
    with PartialAllreduce(comm, x, timeout=20) as coll:
        if comm.rank > 0:
            comm.barrier()
            coll.allreduce(x)
        else:
            thread = threading.Thread(target=coll.allreduce, args=(x,), daemon=True)
            thread.start()
            time.sleep(0.1)
            for _ in range(3):  # would wait for the version, with which nobody has begun
                assert coll.stats().segment_bytes >= 0
                assert "version" in repr(coll)
            comm.barrier()
            thread.join()
