"""A training with WAGMA on ranks that record the arrivals, beside the model that replays them."""

import time
from typing import Any

import numpy as np
import torch
from wagma_model import Arrival, Vector, check_record, group, replay

import wagma
from wagma.collectives import PartialAllreduce, topology

SHAPES = ((3, 5), (7,), ())
STEPS = 200
PERIOD = 10
RATE = 0.3
START = 0.5

# What a rank recorded of each version, and its model after it.
Recorded = tuple[list[Arrival], list[Vector]]


def local_gradient(rank: int, version: int, model: Vector) -> Vector:
    """Pulls each rank to a point of its own, with noise: models differ, and order shows."""
    draw = np.random.default_rng((rank, version))
    return np.asarray(model - np.full_like(model, rank) + draw.normal(size=model.shape))


def pause(rank: int, version: int) -> float:
    """Seconds of computation: two of eight are slow at each version, of fewer some."""
    slow = np.random.default_rng((99, version)).choice(8, size=2, replace=False)
    return 0.004 if rank in slow else 0.0002 * ((rank + version) % 3)


def comes_last(rank: int, size: int, group_size: int, version: int) -> bool:
    """Whether the rank waits for its group, so that some are late at any speed of the cores.

    It is one rank at every other version, at none that synchronises.
    """
    last = version % 2 == 0 and rank == version // 2 % size
    return last and len(topology.group_of(rank, size, group_size, version)) > 1


def wait_until_late(optimizer: wagma.DistributedOptimizer) -> None:
    """Wait until the version has been averaged without this rank."""
    collective = optimizer.algorithm.collective
    assert isinstance(collective, PartialAllreduce)
    begin = time.monotonic()
    while not collective.pinned():
        assert time.monotonic() - begin < 60
        time.sleep(0.0005)


def train(comm: Any, rank: int, group_size: int, grace: float | str) -> Recorded:
    """This rank's part."""
    tensors = [
        torch.nn.Parameter(torch.full(shape, START, dtype=torch.float64)) for shape in SHAPES
    ]
    inner = torch.optim.SGD(tensors, lr=RATE)
    algorithm = wagma.WAGMA(comm, group_size=group_size, sync_period=PERIOD, grace=grace)
    record: list[Arrival] = []
    models: list[Vector] = []
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        while (version := optimizer.version) < STEPS:
            flat = torch.nn.utils.parameters_to_vector(tensors).detach()
            gradient = torch.from_numpy(local_gradient(rank, version, flat.numpy()))
            offset = 0
            for tensor in tensors:
                part = gradient[offset : offset + tensor.numel()]
                tensor.grad = part.reshape(tensor.shape).clone()
                offset += tensor.numel()
            time.sleep(pause(rank, version))
            if comes_last(rank, algorithm.size, group_size, version):
                wait_until_late(optimizer)
            optimizer.step()
            outcome = optimizer.outcome
            assert outcome is not None
            sources = dict(zip(outcome.contributors, outcome.versions, strict=True))
            record.append(
                Arrival(outcome.version, outcome.late, outcome.merged, outcome.weight, sources)
            )
            models.append(torch.nn.utils.parameters_to_vector(tensors).detach().numpy().copy())
    return record, models


def expected(records: list[list[Arrival]], group_size: int) -> list[list[Vector]]:
    """Every rank's models, if these arrivals may happen."""
    late = sum(arrival.late for arrivals in records for arrival in arrivals)
    assert 0.05 < late / (len(records) * STEPS) < 0.95, "nothing is shown without late and fresh"
    size = len(records)
    # Beyond powers of two the paper has no groups, and the model none of its own.
    grouping = group if size.bit_count() == 1 else topology.group_of

    def group_of(rank: int, version: int) -> tuple[int, ...]:
        return grouping(rank, size, group_size, version)

    check_record(records, group_of, period=PERIOD, window=PERIOD)
    return replay(
        records,
        np.full(sum(int(np.prod(shape)) for shape in SHAPES), START),
        lambda rank, version, model: model - RATE * local_gradient(rank, version, model),
    )
