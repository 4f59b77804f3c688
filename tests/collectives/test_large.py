"""Wait-avoiding versions of arrays so large that results are written by streaming stores."""

import time
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from wagma.collectives import Outcome, PartialAllreduce

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
BYTES = 8 << 20  # REDUCE_STREAM_BYTES of csrc/kernels/reduce.h
VERSIONS = 4

Vector = np.ndarray[Any, Any]

pytestmark = [
    pytest.mark.long,
    pytest.mark.mpi(min_size=2),
    pytest.mark.skipif(SIZE > 3, reason="fewer ranks show it, in less time"),
    pytest.mark.shm("it is there that results are shared"),
]


@cache
def row(count: int) -> Vector:
    return np.arange(count, dtype=np.float32) % 31


def write(x: Vector, rank: int, version: int) -> Vector:
    """Small whole numbers that differ from element to element."""
    np.add(row(x.size), 1 + 7 * rank + 3 * (version + 1), out=x, casting="unsafe")
    return x


@dataclass(frozen=True)
class Call:
    """What a call gave; looked at when no rank waits for another any more."""

    outcome: Outcome
    found: Vector | None
    merges: bool = True  # a late rank's own contribution


def check(call: Call, average: bool) -> None:
    """It is the sum of what the call names."""
    found, outcome = call.found, call.outcome
    assert found is not None
    named = list(zip(outcome.contributors, outcome.versions, strict=True))
    named += [(RANK, outcome.version)] if outcome.late and call.merges else []
    wanted = np.zeros(found.size, np.float32)
    for rank, version in named:
        wanted += write(np.empty_like(wanted), rank, version)
    if average:
        wanted /= len(named)
    # A late rank's average of 16 bits comes from an average that was rounded before.
    tolerance = 2e-3 if found.dtype == np.float16 else 2e-7
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


def come_late(coll: PartialAllreduce, version: int) -> None:
    """Wait until others have started the version, one rank in each."""
    while version % SIZE == RANK and not coll.pinned():
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("dtype", "average", "form"),
    [
        ("float16", True, "empty"),
        ("float16", False, "unaligned"),
        ("float32", True, "empty"),
        ("float32", False, "empty"),
        ("float32", True, "unaligned"),
        ("float64", True, "unaligned"),
        ("int32", False, "empty"),
    ],
)
def test_in_place(dtype: str, average: bool, form: str) -> None:
    count = BYTES // np.dtype(dtype).itemsize + 3
    first = write(np.empty(count, dtype), RANK, -1)
    calls = []
    with PartialAllreduce(
        COMM, first, group_size=SIZE, quorum=1, grace=0.002, average=average
    ) as coll:
        x = coll.empty() if form == "empty" else np.empty(count + 1, dtype)[1:]
        for version in range(VERSIONS):
            write(x, RANK, version)
            COMM.Barrier()
            come_late(coll, version)
            calls.append(Call(coll.allreduce(x), x.copy()))
    assert COMM.allreduce(sum(call.outcome.late for call in calls)) > 0
    for call in calls:
        check(call, average)


def test_out_of_place() -> None:
    first = write(np.empty(BYTES // 4 + 3, np.float32), RANK, -1)
    calls = []
    with PartialAllreduce(COMM, first, group_size=SIZE, quorum=1, grace=0.002) as coll:
        for version in range(VERSIONS):
            x = write(coll.next_contribution(), RANK, version)
            COMM.Barrier()
            come_late(coll, version)
            outcome = coll.allreduce(x)
            result = outcome.result
            calls.append(Call(outcome, None if result is None else result.copy()))
    assert COMM.allreduce(sum(call.outcome.late for call in calls)) > 0
    for call in calls:
        check(call, average=False)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_result(dtype: str) -> None:
    """late="skip": who came too late has no part in any result, and still gets each of them."""
    first = write(np.empty(BYTES // np.dtype(dtype).itemsize + 3, dtype), RANK, -1)
    calls: list[Call] = []
    delivered: list[bytes] = []
    with PartialAllreduce(COMM, first, group_size=SIZE, quorum=1, grace=0.002, late="skip") as coll:
        x = coll.empty()
        while coll.version < VERSIONS:
            version = coll.version
            write(x, RANK, version)
            come_late(coll, version)
            outcome = coll.allreduce(x)
            delivered += [sha256(b"" if one is None else one).digest() for one in outcome.results]
            calls.append(Call(outcome, x.copy(), merges=False))
        ended = coll.version
    assert COMM.allreduce(sum(call.outcome.late for call in calls)) > 0
    for call in calls:
        check(call, average=True)
    # Some may have ended later: they have more.
    least = COMM.allreduce(ended, op=MPI.MIN)
    assert len(delivered) == ended
    assert all(others == delivered[:least] for others in COMM.allgather(delivered[:least]))
    assert delivered[-1] == sha256(calls[-1].found).digest()
