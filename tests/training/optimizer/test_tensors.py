"""Tensors of torch as arrays of collectives: the type that numpy lacks, views, other devices."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from mpi4py import MPI
from refusals import error_everywhere

from wagma.collectives import NeighborExchange, PartialAllreduce, topology

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size


@pytest.mark.parametrize("quorum", [1, "all"])
def test_bfloat16_against_numpy(quorum: Any) -> None:
    """Sums of what it holds exactly; a sync version, so that all are fresh."""
    base, weights = np.arange(-8, 9), [1 + rank % 2 for rank in range(SIZE)]
    x = torch.from_numpy(base * (RANK + 1)).to(torch.bfloat16)
    with PartialAllreduce(COMM, x, average=False, quorum=quorum) as coll:
        assert coll.dtype == "bfloat16"
        outcome = coll.sync(x, weights[RANK])
    assert x.tolist() == sum(base * (rank + 1) * weights[rank] for rank in range(SIZE)).tolist()
    assert (outcome.weight, outcome.contributors) == (sum(weights), tuple(range(SIZE)))


@pytest.mark.parametrize("count", [0, 1, 1000, 300_000])
def test_neighbours_exchange_bfloat16(count: int) -> None:
    """Means over 1 or 2, as precise as 8 bits."""
    graph: Any = "ring" if SIZE < 3 else "exponential"
    x = torch.full((count,), RANK, dtype=torch.bfloat16)
    expected = [float(rank) for rank in range(SIZE)]
    with NeighborExchange(COMM, x, graph=graph) as coll:
        assert (coll.dtype, coll.shape) == ("bfloat16", (count,))
        for version in range(3):
            assert coll.exchange(x).weight == 1
            rows = topology.neighbors(SIZE, graph, 1, version)
            expected = [sum(expected[j] for j in row) / len(row) for row in rows]
            assert (x == expected[RANK]).all()


@pytest.mark.shm("it is there that arrays change their memory")
def test_a_tensor_sees_what_a_large_array_of_empty_shows() -> None:
    """One that is published without a copy: its memory changes from call to call."""
    count = (4 << 20) // 4 + 3  # see segment_remap_min in csrc/shm/segment.h
    start = np.zeros(count, np.float32)
    with PartialAllreduce(
        *(COMM, start), quorum=1, grace=0.0, average=False, sync_period=3
    ) as coll:
        x = coll.empty()
        tensor, address = torch.from_numpy(x), x.ctypes.data
        for version in range(9):
            tensor.fill_(RANK + version)
            coll.allreduce(x)
            assert tensor.data_ptr() == address
            assert (tensor == x[0]).all()
            assert (x == x[0]).all()
            if version % 3 == 2:
                assert tensor[0] == sum(rank + version for rank in range(SIZE))


def test_a_tensor_that_is_not_in_memory_is_everyones_error() -> None:
    """On every rank, and on one."""
    for ranks in (range(SIZE), (SIZE - 1,)):
        x = torch.ones(5, device="meta" if RANK in ranks else "cpu")
        text = error_everywhere(COMM, partial(PartialAllreduce, COMM, x), TypeError)
        assert "is on meta, without values" in text
        if len(ranks) == SIZE:
            assert "rank 0:" not in text
        else:
            assert text.startswith(f"rank {SIZE - 1}: ")
