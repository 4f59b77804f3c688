"""WAGMA on eight ranks beside an independent model of it that replays the order of arrivals."""

import os
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from ranks import ForkedRanks
from wagma_model import Arrival, group, replay
from wagma_run import Recorded, expected, train

from wagma.collectives import Segment

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

SIZE, GROUP_SIZE = 8, 4


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


@pytest.mark.parametrize("grace", [0.0, pytest.param("auto", marks=pytest.mark.long)])
def test_wagma_is_the_model(grace: float | str) -> None:
    job = {"WORLD_SIZE": str(SIZE), "WAGMA_JOB": str(uuid.uuid4())}
    # The first optimizer of a process imports much: here once, and not in every forked rank.
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])

    def body(rank: int, _: Segment, __: Callable[[Any], None]) -> Recorded:
        os.environ.update(job, RANK=str(rank))
        return train(None, rank, GROUP_SIZE, grace)

    with ForkedRanks({"size": SIZE, "count": 1}, body) as ranks:
        results = [ranks.result(rank) for rank in range(SIZE)]
    replayed = expected([record for record, _ in results], GROUP_SIZE)
    for (_, models), same in zip(results, replayed, strict=True):
        np.testing.assert_allclose(models, same, rtol=1e-12, atol=1e-12)
