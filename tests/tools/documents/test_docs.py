"""The code that collectives.md, neighbors.md and inject.md of docs/ show, run as it stands."""

import re
import time

import numpy as np
import pytest
from documents import DOCS, blocks
from mpi4py import MPI

from wagma import inject
from wagma.collectives import methods

pytestmark = pytest.mark.mpi

COLLECTIVES, INJECT = ((DOCS / page).read_text() for page in ("collectives.md", "inject.md"))
COLLECTIVE, RESULTS, SPLIT = blocks("collectives.md", "python")
(NEIGHBORS,) = blocks("neighbors.md", "python")
(IMBALANCE,) = blocks("inject.md", "python")


def equal_everywhere(array: np.ndarray) -> bool:
    return all(np.array_equal(array, other) for other in MPI.COMM_WORLD.allgather(array))


@pytest.mark.mpi(min_size=2)
def test_collective() -> None:
    names = {}
    exec(COLLECTIVE, names)
    assert names["coll"].version == 101
    assert equal_everywhere(names["x"])
    # Averages of arrays to each of which its rank was added a hundred times.
    assert 0 < names["x"][0] <= 100 * (MPI.COMM_WORLD.size - 1)


def test_every_result_reaches_every_rank() -> None:
    names = {}
    exec(RESULTS, names)
    assert names["coll"].version == 51
    assert equal_everywhere(names["model"])
    contributed = MPI.COMM_WORLD.allreduce(names["coll"].stats().calls * MPI.COMM_WORLD.rank)
    expected = -0.1 * contributed / MPI.COMM_WORLD.size
    np.testing.assert_allclose(names["model"], expected, rtol=1e-4)


def test_every_method_is_listed() -> None:
    lines = [line for line in methods.__doc__.splitlines() if line.startswith("|")]
    assert "\n".join(lines) in COLLECTIVES


@pytest.mark.mpi(min_size=2)
def test_split_calls_and_contributions_in_place() -> None:
    names = {}
    exec(SPLIT, names)
    assert names["coll"].version == 100
    assert equal_everywhere(names["x"])  # version 99 is a sync version
    assert 0 < names["x"][0] <= 100 * (MPI.COMM_WORLD.size - 1)


@pytest.mark.mpi(min_size=2)
def test_neighbours() -> None:
    """Both graphs bring the ranks' arrays together, and keep their mean."""
    own = np.array([MPI.COMM_WORLD.rank], np.float64)
    names = {"x": own.copy(), "z": own.copy(), "steps": 40}
    exec(NEIGHBORS, names)
    mean = (MPI.COMM_WORLD.size - 1) / 2
    np.testing.assert_allclose((names["x"][0], names["z"][0]), mean, atol=1e-2)
    assert names["weight"] == 1.0


def test_imbalance(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    exec(IMBALANCE, {"rank": 3})
    assert 30 <= len(slept) <= 70  # two of four ranks are drawn for each of a hundred steps
    assert set(slept) == {0.3}


def test_every_imbalance_is_listed() -> None:
    assert re.findall(r"^\| `(\S+)` \|", INJECT, re.MULTILINE) == inject.forms()
