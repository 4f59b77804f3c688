"""WAGMA on real ranks beside an independent model of it that replays the order of arrivals."""

import time

import numpy as np
import pytest
from mpi4py import MPI
from wagma_model import Arrival, Vector, check_record, group, replay

import wagma

SHAPES = ((3, 5), (7,), ())
STEPS = 200
RATE = 0.3


def local_gradient(rank: int, version: int, model: Vector) -> Vector:
    """Pulls each rank to a point of its own, with noise: models differ, and order shows."""
    draw = np.random.default_rng((rank, version))
    return np.asarray(model - np.full_like(model, rank) + draw.normal(size=model.shape))


def pause(rank: int, version: int) -> float:
    """Seconds of computation: two ranks of eight are slow at each version."""
    slow = np.random.default_rng((99, version)).choice(8, size=2, replace=False)
    return 0.004 if rank in slow else 0.0002 * ((rank + version) % 3)


def test_the_models_groups_are_the_papers() -> None:
    assert [group(0, 8, 4, t) for t in (0, 1)] == [(0, 1, 2, 3), (0, 1, 4, 5)]
    assert [group(2, 8, 4, t) for t in (0, 1)] == [(0, 1, 2, 3), (2, 3, 6, 7)]


def test_the_model_gives_the_papers_example() -> None:
    """P=4, S=2, models 10 20 30 40, updates 1 2 3 4, rank 1 late with 17 in its send buffer."""
    published = {0: [10.0, 17.0, 30.0, 40.0], 1: [11.0, 22.0, 33.0, 44.0]}
    first = [Arrival(0, False, True, 1.0, {rank: 0}) for rank in range(4)]
    second = [
        Arrival(1, False, True, 2.0, {0: 1, 1: 0}),
        Arrival(1, True, True, 3.0, {0: 1, 1: 0}),
        Arrival(1, False, True, 2.0, {2: 1, 3: 1}),
        Arrival(1, False, True, 2.0, {2: 1, 3: 1}),
    ]
    models = replay(
        [[first[rank], second[rank]] for rank in range(4)],
        np.zeros(1),
        lambda rank, version, _model: np.array([published[version][rank]]),
    )
    assert [model[1][0] for model in models] == pytest.approx([14, 50 / 3, 77 / 2, 77 / 2])


@pytest.mark.mpi(min_size=8)
@pytest.mark.parametrize("grace", [0.0, "auto"])
def test_wagma_is_the_model(grace: float | str) -> None:
    import torch  # only where there are eight ranks

    comm = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank >= 8)
    tensors = [torch.nn.Parameter(torch.full(shape, 0.5, dtype=torch.float64)) for shape in SHAPES]
    inner = torch.optim.SGD(tensors, lr=RATE)
    algorithm = wagma.WAGMA(comm, group_size=4, sync_period=10, grace=grace)
    record: list[Arrival] = []
    models: list[Vector] = []
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        while (version := optimizer.version) < STEPS:
            flat = torch.nn.utils.parameters_to_vector(tensors).detach()
            gradient = torch.from_numpy(local_gradient(comm.rank, version, flat.numpy()))
            offset = 0
            for tensor in tensors:
                part = gradient[offset : offset + tensor.numel()]
                tensor.grad = part.reshape(tensor.shape).clone()
                offset += tensor.numel()
            time.sleep(pause(comm.rank, version))
            optimizer.step()
            outcome = optimizer.outcome
            assert outcome is not None
            sources = dict(zip(outcome.contributors, outcome.versions, strict=True))
            record.append(
                Arrival(outcome.version, outcome.late, outcome.merged, outcome.weight, sources)
            )
            models.append(torch.nn.utils.parameters_to_vector(tensors).detach().numpy().copy())
    records = comm.allgather(record)
    late = sum(arrival.late for arrivals in records for arrival in arrivals)
    assert 0.05 < late / (8 * STEPS) < 0.95, "nothing is shown without late and fresh ranks"
    check_record(records, group_size=4, period=10, window=10)
    expected = replay(
        records,
        np.full(models[0].shape, 0.5),
        lambda rank, version, model: model - RATE * local_gradient(rank, version, model),
    )
    np.testing.assert_allclose(models, expected[comm.rank], rtol=1e-12, atol=1e-12)
