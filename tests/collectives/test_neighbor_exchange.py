"""NeighborExchange on real ranks: against its matrix, with delays, by every graph; and what breaks.

That nothing is torn and that exactly the neighbours of a version are in its result, whatever the
delays, is tested more thoroughly in C (tests/engine/test_graph_engine.c).
"""

import random
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mpi4py import MPI
from refusals import error_everywhere
from stalls import patient_creation, soon  # noqa: F401 (a fixture)
from teams import teams

from wagma.collectives import (
    HandleError,
    MismatchError,
    NeighborExchange,
    PeerError,
    StallError,
    topology,
)

pytestmark = pytest.mark.mpi

GRAPHS = [
    ("ring", 1),
    ("exponential", 1),
    ("exponential", 2),
    ("exponential", 3),
    ("exponential", 6),
]
VERSIONS = 9


def possible(size: int) -> Iterator[tuple[Any, int]]:
    """Graphs and numbers of neighbours that `size` ranks can have."""
    most = max(1, size - 1)
    return ((graph, n) for graph, n in GRAPHS if n <= most)


def made(rank: int, version: int, count: int) -> npt.NDArray[np.float64]:
    """A contribution that tells whose it is and of which version."""
    return np.random.default_rng((rank, version)).integers(-8, 8, count).astype(np.float64)


def weight_of(rank: int, version: int) -> float:
    return (rank * 5 + version * 3) % 4 / 2  # 0, 0.5, 1, 1.5


def combined(
    rank: int, row: dict[int, float], version: int, count: int, average: bool
) -> tuple[npt.NDArray[np.float64], float]:
    """What the definition gives to `rank`, and the weight."""
    shares = {j: share * weight_of(j, version) for j, share in row.items()}
    weight = sum(shares.values())
    if weight == 0:
        return made(rank, version, count), 0
    total = sum(share * made(j, version, count) for j, share in shares.items())
    return np.asarray(total) / (weight if average else 1), weight


@pytest.mark.parametrize("average", [True, False])
def test_against_the_matrix(comm: MPI.Intracomm, average: bool) -> None:
    count = 700  # float64: larger than what goes inside a message
    rng = random.Random(comm.rank)
    for team in teams(comm):
        for graph, neighbors in possible(team.size):
            like = np.empty((7, count // 7))
            with NeighborExchange(
                team, like, graph=graph, neighbors=neighbors, average=average
            ) as coll:
                for version in range(VERSIONS):
                    x = made(team.rank, version, count).reshape(like.shape)
                    time.sleep(rng.choice((0, 0, 0.001)))
                    assert coll.version == version
                    outcome = coll.exchange(x, weight_of(team.rank, version))
                    row = topology.neighbors(team.size, graph, neighbors, version)[team.rank]
                    wanted, weight = combined(team.rank, row, version, count, average)
                    np.testing.assert_allclose(x.ravel(), wanted, rtol=1e-12, atol=1e-12)
                    present = tuple(j for j in row if weight_of(j, version) != 0)
                    assert outcome.contributors == present
                    assert outcome.versions == (version,) * len(present)
                    assert outcome.weight == pytest.approx(weight, rel=1e-14)
                    assert (outcome.version, outcome.late) == (version, False)
                    assert outcome.merged == bool(present)
                stats = coll.stats()
                assert (stats.calls, stats.late, stats.ranks) == (VERSIONS, 0, ())


@pytest.mark.parametrize("count", [0, 1, 1000, 300_000])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_types_and_sizes(comm: MPI.Intracomm, dtype: str, count: int) -> None:
    """Means of small whole numbers over 1, 2 or 4: exact in every type."""
    graph: Any = "ring" if comm.size < 3 else "exponential"
    neighbors = 1
    x = np.full(count, comm.rank, dtype)
    expected = [float(rank) for rank in range(comm.size)]
    with NeighborExchange(comm, x, graph=graph, neighbors=neighbors) as coll:
        assert (coll.dtype, coll.shape) == (dtype, (count,))
        for version in range(3):
            outcome = coll.exchange(x)
            rows = topology.neighbors(comm.size, graph, neighbors, version)
            expected = [sum(expected[j] for j in row) / len(row) for row in rows]
            assert outcome.weight == 1
            assert (x == expected[comm.rank]).all()


def test_the_mean_stays_and_ranks_get_there(comm: MPI.Intracomm) -> None:
    for graph, neighbors in possible(comm.size):
        x = np.random.default_rng(comm.rank).random(50)
        mean = np.mean(comm.allgather(x), axis=0)
        with NeighborExchange(comm, x, graph=graph, neighbors=neighbors) as coll:
            for _ in range(60):
                coll.exchange(x)
        np.testing.assert_allclose(np.mean(comm.allgather(x), axis=0), mean, rtol=1e-12)
        np.testing.assert_allclose(x, mean, rtol=0.01)


def test_push_sum(comm: MPI.Intracomm) -> None:
    """With its weight handed on, an average is push-sum's de-biased value, at every version."""
    for graph, neighbors in possible(comm.size):
        values = np.array([[3.0 * j, 1.0 - j] for j in range(comm.size)])
        weights = np.array([1.0 + j for j in range(comm.size)])
        numerators = weights[:, None] * values
        z = values[comm.rank].copy()
        weight = weights[comm.rank]
        with NeighborExchange(comm, z, graph=graph, neighbors=neighbors) as coll:
            for version in range(3 * VERSIONS):
                rows = topology.neighbors(comm.size, graph, neighbors, version)
                shares = np.array([[row.get(j, 0) for j in range(comm.size)] for row in rows])
                numerators, weights = shares @ numerators, shares @ weights
                weight = coll.exchange(z, weight).weight
                assert weight == pytest.approx(weights[comm.rank], rel=1e-12)
                np.testing.assert_allclose(z, numerators[comm.rank] / weight, rtol=1e-12)


def test_nothing_of_weight_0_is_read(comm: MPI.Intracomm) -> None:
    x = np.full(600, np.nan if comm.rank == 0 else 4.0)
    with NeighborExchange(comm, x) as coll:
        outcome = coll.exchange(x, 0 if comm.rank == 0 else 1)
        assert 0 not in outcome.contributors
        assert outcome.merged == (comm.size > 1)
        assert (x == 4).all() if comm.size > 1 else np.isnan(x).all()
        x[:] = comm.rank
        nobody = coll.exchange(x, 0)
        assert (nobody.merged, nobody.weight, nobody.contributors) == (False, 0, ())
        assert (x == comm.rank).all()


def test_every_run_gives_the_same_bits(comm: MPI.Intracomm) -> None:
    """Sums that depend on the order of additions, with delays that change it."""
    results = set()
    for graph, neighbors in possible(comm.size):
        for run in range(3):
            rng = random.Random((comm.rank + 1) * (run + 1))
            x = np.random.default_rng(comm.rank).standard_normal(5000).astype(np.float32)
            with NeighborExchange(comm, x, graph=graph, neighbors=neighbors) as coll:
                for _ in range(VERSIONS):
                    time.sleep(rng.choice((0, 0.001)))
                    coll.exchange(x, 1 + comm.rank / 3)
            results.add(x.tobytes())
        assert len(results) == 1
        results.clear()


# ---- leaving and failing -------------------------------------------------------------------------


def test_ranks_that_leave(comm: MPI.Intracomm) -> None:
    """Rank r takes 3(r+1) versions, is in each of them, and nobody waits for it afterwards."""
    for graph, neighbors in possible(comm.size):
        x = np.empty(400)
        with NeighborExchange(comm, x, graph=graph, neighbors=neighbors) as coll:
            for version in range(3 * (comm.rank + 1)):
                x[:] = comm.rank
                outcome = coll.exchange(x)
                row = topology.neighbors(comm.size, graph, neighbors, version)[comm.rank]
                present = tuple(j for j in row if 3 * (j + 1) > version)
                assert outcome.contributors == present
                assert outcome.weight == pytest.approx(len(present) / len(row))
                np.testing.assert_allclose(x, np.mean(present))
        assert coll.closed
        assert coll.version == 3 * (comm.rank + 1)
        with pytest.raises(HandleError, match="closed"):
            coll.exchange(x)
        coll.close()


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_fails(comm: MPI.Intracomm) -> None:
    """Its neighbours get an error that names a rank, theirs as well, and so on."""
    x = np.zeros(3)
    victim = comm.size - 1
    with (
        pytest.raises(ZeroDivisionError if comm.rank == victim else PeerError) as caught,
        NeighborExchange(comm, x, timeout=60) as coll,
    ):
        coll.exchange(x)
        if comm.rank == victim:
            raise ZeroDivisionError
        while True:
            coll.exchange(x)
    assert coll.closed
    if comm.rank != victim:
        assert "rank " in str(caught.value)
    comm.Barrier()


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("patient_creation")
def test_a_neighbour_that_does_not_come(comm: MPI.Intracomm) -> None:
    x = np.zeros(3)
    coll = NeighborExchange(comm, x, timeout=soon(comm), name="ring")
    if comm.rank == 1:
        with pytest.raises(StallError, match=r"at version 0 \(phase neighbors\) for ranks? 0"):
            coll.exchange(x)
    comm.Barrier()
    coll.fail()


# ---- what is refused -----------------------------------------------------------------------------


def test_wrong_arguments(comm: MPI.Intracomm) -> None:
    x = np.zeros(3)
    most = max(1, comm.size - 1)
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"graph": "star"}, ValueError, "graph='star' must be 'ring' or 'exponential'"),
        ({"graph": None}, TypeError, "graph=None"),
        ({"neighbors": 2}, ValueError, "neighbors=2 and graph='ring'"),
        ({"graph": "exponential", "neighbors": 0}, ValueError, "neighbors=0 must be"),
        ({"graph": "exponential", "neighbors": most + 1}, ValueError, f"neighbors={most + 1} "),
        ({"graph": "exponential", "neighbors": 1.5}, TypeError, "neighbors=1.5 must be an int"),
        ({"average": 1}, TypeError, "average=1 must be True or False"),
        ({"timeout": -1}, ValueError, "timeout=-1"),
        ({"progress": "fast"}, ValueError, "progress='fast'"),
        ({"group_size": 2}, TypeError, "group_size"),
        ({"quorum": "all"}, TypeError, "quorum"),
    ]
    for arguments, kind, text in wrong:
        told = error_everywhere(
            comm, lambda arguments=arguments: NeighborExchange(comm, x, **arguments), kind
        )
        assert text in told
    for average in (True, False):
        told = error_everywhere(
            comm,
            lambda average=average: NeighborExchange(comm, np.zeros(3, np.int32), average=average),
            TypeError,
        )
        assert "int32" in told


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("argument", ["neighbors", "graph", "group_size"])
def test_one_rank_is_wrong(comm: MPI.Intracomm, argument: str) -> None:
    value: Any = {"neighbors": 9, "graph": "star", "group_size": 2}[argument]
    odd = comm.size - 1
    arguments = {argument: value} if comm.rank == odd else {}
    kind = TypeError if argument == "group_size" else ValueError
    told = error_everywhere(comm, lambda: NeighborExchange(comm, np.zeros(3), **arguments), kind)
    assert argument in told


@pytest.mark.mpi(min_size=2)
def test_ranks_disagree(comm: MPI.Intracomm) -> None:
    first = comm.rank == 0
    different: list[tuple[str, Any, Any]] = [
        ("graph", "ring", "exponential"),
        ("average", True, False),
        ("timeout", 1, 2),
        ("name", "a", "b"),
    ]
    for argument, ours, theirs in different:
        told = error_everywhere(
            comm,
            lambda argument=argument, value=ours if first else theirs: NeighborExchange(
                comm, np.zeros(3), **{argument: value}
            ),
            MismatchError,
        )
        assert told.startswith(f"{argument} differs between ranks: {ours!r} on rank 0; ")
    error_everywhere(
        comm, lambda: NeighborExchange(comm, np.zeros(3 if first else 4)), MismatchError
    )


def test_wrong_calls_leave_it_usable(comm: MPI.Intracomm) -> None:
    x = np.full(3, float(comm.rank))
    with NeighborExchange(comm, x, name="models") as coll:
        for wrong, weight, kind in (
            (np.zeros(4), 1, ValueError),
            (np.zeros(3, np.float32), 1, TypeError),
            (x, -1, ValueError),
            (x, float("nan"), ValueError),
        ):
            with pytest.raises(kind):
                coll.exchange(wrong, weight)
        assert coll.version == 0
        coll.exchange(x)
        row = topology.neighbors(comm.size, "ring", 1, 0)[comm.rank]
        np.testing.assert_allclose(x, np.mean(list(row)))
        assert "version=1" in repr(coll)
        assert "graph='ring'" in repr(coll)
        assert "rank" in coll.dump_state() or "call" in coll.dump_state()
        assert asdict(coll.options)["name"] == coll.name == "models"
        assert (coll.rank, coll.size) == (comm.rank, comm.size)
        assert coll.transport in ("shm", "mpi")
    assert "closed" in repr(coll)
