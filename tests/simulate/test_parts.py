"""Parts of the engine alone: grace by its rule, models by Algorithm 2's example."""

import math
from fractions import Fraction

import numpy as np
import pytest

from wagma.simulate.grace import Grace
from wagma.simulate.quadratic import Models


def test_grace_is_that_of_the_last_arrivals() -> None:
    rng = np.random.default_rng(1)
    grace, ranks = Grace("auto", 2), np.array([1])
    spreads: list[float] = []
    computes: list[float] = []
    assert grace.of(ranks) == 200e-6
    for _ in range(80):
        spread, compute = rng.exponential(5e-3), rng.exponential(0.1)
        spreads.append(spread)
        computes.append(compute)
        grace.arrived(ranks, np.array([spread]))
        grace.computed(ranks, np.array([compute]))
        n = min(len(spreads), 32)
        quantile = sorted(spreads[-32:])[math.ceil(Fraction(4, 5) * n) - 1]
        median = sorted(computes[-32:])[math.ceil(n / 2) - 1]
        expected = 200e-6 if n < 4 else max(50e-6, min(quantile, median / 10))
        assert grace.of(ranks) == pytest.approx(expected)
    assert grace.of(np.array([0])) == 200e-6, "each rank has its own"


def test_models_are_those_of_the_paper() -> None:
    """P=4, S=2: rank 1 is late with 17 in its send buffer, groups {0,1} and {2,3}."""
    models = Models(4, 2, np.random.default_rng(0))
    models._models[:] = np.array([[11.0], [22.0], [33.0], [44.0]])
    models._published[:, :] = models._models
    models._published[0, 1] = 17.0
    models.average(1, np.array([[0, 1], [2, 3]]), np.array([0, 1, 0, 0]))
    expected = np.array([14.0, 50 / 3, 77 / 2, 77 / 2])
    assert models._models == pytest.approx(np.tile(expected[:, np.newaxis], (1, 8)))
    models.synchronise()
    assert models._models == pytest.approx(expected.mean())
