"""The end of a training of the benchmark, also where one rank leaves it earlier."""

import gc

import pytest
import torch
from asked import settings
from mapped import segments
from mpi4py import MPI
from tiny import mostly_long

from wagma.benchmarks.training.algorithms import DEFAULT, find
from wagma.benchmarks.training.tasks import load
from wagma.benchmarks.training.train import train
from wagma.inject import parse

pytestmark = pytest.mark.mpi

STEPS = 12
SETTINGS = settings(algorithms=DEFAULT, steps=STEPS, sync_period=3, batch=2)


@pytest.mark.parametrize("name", mostly_long(DEFAULT, ("wagma", "allreduce", "sgp1")))
def test_one_rank_stops(comm: MPI.Intracomm, name: str) -> None:
    """Before a version that needs all ranks, and the others are not told."""
    torch.set_num_threads(1)
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        if asked <= STEPS // 2 + 1:
            comm.barrier()  # a rank that is late goes on at the newest version: not at the last one
        return comm.rank == comm.size - 1 and asked > STEPS // 2

    task, imbalance = load("digits", 1), parse("none", comm.size)
    compared = find(name, SETTINGS, comm.size)
    done: list[int] = []
    assert train(comm, SETTINGS, compared, 1, task, imbalance, done.append, stopped) is None
    if comm.rank < comm.size - 1:
        assert done[-1] == STEPS
    else:
        assert done[-1] < STEPS


def test_its_memory_is_free_for_the_next_one(comm: MPI.Intracomm) -> None:
    torch.set_num_threads(1)
    task, imbalance = load("digits", 1), parse("none", comm.size)
    compared = find("wagma", SETTINGS, comm.size)
    gc.collect()
    before = segments()
    done: list[int] = []
    trained = train(comm, SETTINGS, compared, 1, task, imbalance, done.append, lambda: False)
    assert trained is not None
    assert len(trained.consensus) == STEPS // 3
    assert segments() == before


@pytest.mark.parametrize(
    "name",
    mostly_long(
        ["ksync1", "kasync1", "fastest-k", "k-sync1", "k-batch-async1"], ("ksync1", "k-sync1")
    ),
)
def test_ranks_that_do_not_compute_every_version(comm: MPI.Intracomm, name: str) -> None:
    """Late ranks jump, and a server makes all versions in one step."""
    torch.set_num_threads(1)
    task, imbalance = load("digits", 1), parse("exponential:2ms", comm.size)
    compared = find(name, SETTINGS, comm.size)
    if comm.size < compared.least_ranks:
        pytest.skip("too few ranks")
    done: list[int] = []
    trained = train(comm, SETTINGS, compared, 1, task, imbalance, done.append, lambda: False)
    assert trained is not None
    assert trained.snapshot_versions == list(range(1, STEPS + 1))
    computed = [record["micro_batches"] for record in trained.records]
    assert sum(computed) >= STEPS  # a rank that is always late may have none
    if name.startswith("k-"):
        assert computed[-1] == 0, "it serves"
    for record in trained.records:
        seconds = record["snapshot_seconds"]
        assert seconds == sorted(seconds)
        assert len(seconds) == STEPS
        assert seconds[0] < record["end_seconds"]
