"""Large arrays of `empty()` where a version starts with one rank.

They are published without a copy, so that their memory changes from call to call; their address
does not.
"""

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from wagma.collectives import PartialAllreduce

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
COUNT = (4 << 20) // 4 + 3  # see segment_remap_min in csrc/shm/segment.h
SUM = SIZE * (SIZE - 1) / 2  # of the ranks

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.skipif(SIZE > 3, reason="fewer ranks show it, in less time"),
    pytest.mark.shm("it is there that arrays change their memory"),
]


def start(**options: Any) -> PartialAllreduce:
    """Sums of all ranks, which are all waited for at every third version."""
    return PartialAllreduce(
        *(COMM, np.zeros(COUNT, np.float32)),
        **{"quorum": 1, "grace": 0.0, "average": False, "sync_period": 3, **options},
    )


def test_views_see_what_it_shows() -> None:
    with start() as coll:
        x = coll.empty()
        part, address = x[COUNT // 2 :], x.ctypes.data
        for version in range(9):
            x.fill(RANK + version)
            outcome = coll.allreduce(x)
            assert x.ctypes.data == address
            assert (x == x[0]).all()
            assert (part == x[0]).all()
            if version % 3 == 2:
                assert len(outcome.contributors) == SIZE
                assert x[0] == SUM + SIZE * version


@pytest.mark.parametrize("end", ["close", "close(sync=True)", "fail"])
def test_it_lives_on(end: str) -> None:
    coll = start()
    x = coll.empty()
    for version in range(4):
        x.fill(RANK + version)
        coll.allreduce(x)
    x.fill(7)
    if end == "fail":
        COMM.Barrier()  # nobody needs this rank any more
        coll.fail()
    else:
        coll.close(sync=end != "close")
    COMM.Barrier()
    del coll
    assert (x == 7).all()
    x += 1
    assert (x == 8).all()


def test_beside_contributions_that_are_filled_in_place() -> None:
    with start() as coll:
        x = coll.empty()
        for version in range(12):
            reserved = coll.next_contribution()
            x.fill(RANK + version)
            reserved.fill(RANK + version)
            outcome = coll.allreduce(x if version % 2 else reserved)
            if version % 2 == 0:
                assert (x == RANK + version).all(), "the call was given another array"
            else:
                assert (reserved == RANK + version).all(), "it stays reserved"
            if version % 3 == 2:
                result = x if version % 2 else outcome.result
                assert result is not None
                assert (result == SUM + SIZE * version).all()


def test_posted_it_can_be_read() -> None:
    with start(grace=20.0) as coll:
        x = coll.empty()
        for version in range(4):
            x.fill(RANK + version)
            request = coll.iallreduce(x)
            COMM.Barrier()
            if SIZE > 1:
                assert (x == RANK + version).all()
            COMM.Barrier()
            request.wait()
            assert (x == SUM + SIZE * version).all()
