"""Eager-SGD: what becomes of gradients that are carried when a rank has none, or loads a state."""

from collections.abc import Iterator

import numpy as np
import pytest
from references import COMMON, RARE, SGD, gradient
from scripted import Made, Team, Training


@pytest.fixture
def two() -> Iterator[Team]:
    with Team(2) as team:
        yield team


def arrive(training: Training, rank: int, command: str = "step") -> Made:
    made = training.arrive(rank, command)
    assert made is not None
    return made


def test_a_rank_without_data_contributes_what_it_carries_once(two: Team) -> None:
    start = np.zeros(COMMON + RARE)
    inner = SGD()
    first = inner(start, gradient(0, 0, start) / 2)
    carried = gradient(1, 0, start)
    second = inner(first, carried / 2)
    third = inner(second, gradient(0, 1, first))  # rank 1 had nothing at last: a mean of one
    with two.train("EagerSGD", "SGD", variant="solo", grace=0) as training:
        assert (arrive(training, 0).model == first).all()
        assert arrive(training, 1).late
        made = arrive(training, 1, "passive")  # starts version 1 with what it carries
        assert (made.model == second).all()
        assert (made.contributors, made.weight) == ((1,), 2)
        made = arrive(training, 0)  # its gradient at the first model comes too late
        assert made.late
        assert (made.model == second).all()
        made = arrive(training, 1, "passive")  # starts version 2 without anything
        assert (made.model == second).all()
        assert made.contributors == ()
        assert arrive(training, 0, "passive").late
        made = arrive(training, 0, "passive")  # version 3, with what was carried through version 2
        assert made.contributors == (0,)
        assert made.version == 4
        assert made.weight == 1
        assert (made.model == third).all()
        assert (arrive(training, 1, "passive").model == made.model).all()


def test_what_is_carried_is_dropped_when_a_state_is_loaded(two: Team) -> None:
    """Its gradient is that of a model that is no more."""
    with two.train("EagerSGD", "SGD", variant="solo", grace=0) as training:
        arrive(training, 0)
        assert arrive(training, 1).late
        training.together("save")
        before = training.together("load")
        assert [made.version for made in before] == [1, 1]
        made = arrive(training, 1)
        model = before[1].model
        expected = SGD()(model, gradient(1, 1, model) / 2)
        assert (made.model == expected).all()


def test_one_version_synchronises(two: Team) -> None:
    """Though it makes two calls: of what is carried, and of the models."""
    with two.train("EagerSGD", "SGD", variant="majority", grace=0) as training:
        for version in (1, 2, 3):
            made = training.together("synchronize")
            assert [each.version for each in made] == [version, version]
