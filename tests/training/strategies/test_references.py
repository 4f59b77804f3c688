"""Each algorithm for 20 steps beside a numpy reference, ranks arriving as a script says.

pytestmark = pytest.mark.long

With SGD and momentum, whose constants are powers of two, numpy and torch round alike, and models
have to be equal to the bit. Adam's formula is evaluated in another order, and so is D-PSGD's and
SGP's sum: those agree to 1e-12.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from algorithm2 import Model, arrivals, group_of
from references import (
    COMMON,
    INNER,
    RARE,
    Allreduce,
    Eager,
    Inner,
    Local,
    Lockstep,
    Push,
    Ring,
    Vector,
    drawn,
    gradient,
    total,
)
from scripted import Made, Team

from wagma.collectives import topology

STEPS = 20
LONG = pytest.mark.long
_teams: dict[int, Team] = {}


@pytest.fixture(scope="module", autouse=True)
def all_teams() -> Iterator[None]:
    yield
    for made in _teams.values():
        made.__exit__()
    _teams.clear()


def team(size: int) -> Team:
    """The ranks that earlier tests left, or new ones."""
    if size not in _teams or not _teams[size].alive:
        _teams[size] = Team(size)
    return _teams[size]


def equal(given: Vector, expected: Vector, *, exact: bool) -> None:
    if exact:
        assert given.tobytes() == expected.tobytes(), f"{given} is not {expected}"
    else:
        np.testing.assert_allclose(given, expected, rtol=1e-12, atol=1e-12)


# ---- all ranks wait for each other ---------------------------------------------------------------


class GroupsOf(Lockstep):
    """The mean of each group, of all ranks where a period ends; powers of two."""

    def __init__(
        self, size: int, inner: Callable[[], Inner], group_size: int, *, fixed: bool, period: int
    ) -> None:
        super().__init__(size, inner)
        self._group_size, self._fixed, self._period = group_size, fixed, period

    def mix(self, models: list[Vector]) -> list[Vector]:
        if (self.version + 1) % self._period == 0:
            return self.average(models)
        version = 0 if self._fixed else self.version
        groups = [group_of(r, self.size, self._group_size, version) for r in range(self.size)]
        return [total([models[r] for r in group]) / self._group_size for group in groups]


# name: the algorithm, its arguments, the reference, and whether sums are in the same order
LOCKSTEP: dict[str, tuple[str, dict[str, Any], Callable[..., Lockstep], bool]] = {
    "allreduce": ("AllreduceSGD", {}, Allreduce, True),
    "local-1": ("LocalSGD", {"sync_period": 1}, lambda p, i: Local(p, i, 1), True),
    "local-3": ("LocalSGD", {"sync_period": 3}, lambda p, i: Local(p, i, 3), True),
    "local-never": ("LocalSGD", {"sync_period": None}, lambda p, i: Local(p, i, 99), True),
    "dpsgd": ("DPSGD", {}, Ring, False),
    "sgp-1": ("SGP", {}, lambda p, i: Push(p, i, 1), False),
    # What WAGMA-SGD with other choices is exactly.
    "wagma-no-groups": (
        "WAGMA",
        {"group_size": 1, "sync_period": 3, "grace": 0},
        lambda p, i: Local(p, i, 3),
        True,
    ),
    "wagma-tau-1": ("WAGMA", {"sync_period": 1, "grace": 0}, lambda p, i: Local(p, i, 1), True),
}


def follow(size: int, inner: str, expected: Lockstep, exact: bool, name: str, **how: Any) -> None:
    with team(size).train(name, inner, **how) as training:
        for step in range(1, STEPS + 1):
            for made, model in zip(training.together(), expected.step(), strict=True):
                equal(made.model, model, exact=exact)
                assert made.version == step
                assert not made.late
        mean = expected.average(expected.models)[0]
        last = training.together("synchronize")
        for made in last:
            equal(made.model, mean, exact=False)
            assert made.version == STEPS + 1
            assert made.model.tobytes() == last[0].model.tobytes()


@pytest.mark.parametrize("size", [2, 5, *(pytest.param(n, marks=LONG) for n in (1, 3, 4, 8))])
@pytest.mark.parametrize("name", LOCKSTEP)
def test_in_lockstep(size: int, name: str) -> None:
    algorithm, how, reference, exact = LOCKSTEP[name]
    follow(size, "momentum", reference(size, INNER["momentum"]), exact, algorithm, **how)


@pytest.mark.parametrize("inner", ["SGD", "Adam"])
@pytest.mark.parametrize("name", ["allreduce", "local-3", "dpsgd", "sgp-1"])
def test_other_optimizers(inner: str, name: str) -> None:
    algorithm, how, reference, exact = LOCKSTEP[name]
    exact = exact and inner == "SGD"
    follow(3, inner, reference(3, INNER[inner]), exact, algorithm, **how)


@pytest.mark.parametrize(
    ("size", "neighbors"),
    [
        *((3, 2), (5, 3)),
        *(pytest.param(*one, marks=LONG) for one in [(4, 2), (5, 2), (8, 2), (8, 3), (8, 4)]),
    ],
)
def test_push_to_several(size: int, neighbors: int) -> None:
    expected = Push(size, INNER["momentum"], neighbors)
    follow(size, "momentum", expected, False, "SGP", neighbors=neighbors)
    assert expected.weights == pytest.approx([1.0] * size, rel=1e-15)


@pytest.mark.parametrize("inner", ["momentum", "Adam"])
@pytest.mark.parametrize(("size", "neighbors"), [(2, 1), (3, 1), (5, 2)])
def test_push_with_other_weights(size: int, neighbors: int, inner: str) -> None:
    """As they are when a rank has left: x is not z, and the update is that of x."""
    weights = [1.0 + rank for rank in range(size)]
    expected = Push(size, INNER[inner], neighbors, weights)
    with team(size).train("SGP", inner, neighbors=neighbors) as training:
        training.together("weigh")
        for _ in range(STEPS):
            for rank, (made, model) in enumerate(
                zip(training.together(), expected.step(), strict=True)
            ):
                equal(made.model, model, exact=False)
                assert made.weight == pytest.approx(expected.weights[rank], rel=1e-14)
        x = [w * z for w, z in zip(expected.weights, expected.models, strict=True)]
        for made in training.together("synchronize"):
            equal(made.model, total(x) / sum(weights), exact=False)
        for made in training.together():
            assert made.weight == 1


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(("size", "group_size"), [(2, 2), (4, 2), (8, 2), (8, 4), (8, 8)])
def test_an_ordinary_group_allreduce(size: int, group_size: int, fixed: bool) -> None:
    """The paper's beta; with S = P every step averages all models."""
    expected = GroupsOf(size, INNER["momentum"], group_size, fixed=fixed, period=6)
    how = {"group_size": group_size, "sync_period": 6, "dynamic_groups": not fixed}
    follow(size, "momentum", expected, True, "WAGMA", wait_avoiding=False, **how)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_one_group_of_all_with_nobody_late(size: int) -> None:
    how = {"group_size": size, "sync_period": None, "grace": 30.0}
    follow(size, "momentum", Local(size, INNER["momentum"], 1), True, "WAGMA", **how)


# ---- models in groups, nobody waits --------------------------------------------------------------


class AnyGroups(Model):
    """Algorithm 2 with groups that are looked up: pairs are drawn, and P is no power of two."""

    grouping = "pairs"

    def _group(self, rank: int, version: int) -> tuple[int, ...]:
        groups = topology.groups(
            self.size, self._group_size, version, grouping=self.grouping, seed=5
        )
        return next(group for group in groups if rank in group)


class DynamicGroups(AnyGroups):
    grouping = "dynamic"


def scripted(expected: Model, inner: str, name: str, **how: Any) -> Counter[str]:
    """Trains beside Algorithm 2; returns how often what happened."""
    size = expected.size
    inners = [INNER[inner]() for _ in range(size)]
    models = [np.zeros(COMMON + RARE) for _ in range(size)]
    seen: Counter[str] = Counter()

    def own_step(rank: int) -> Vector:
        version = expected.version[rank]
        return inners[rank](models[rank], gradient(rank, version, models[rank]))

    def agrees(rank: int, made: Made | None, one: Any) -> None:
        assert made is not None, f"rank {rank} waits"
        assert (made.late, made.skipped, made.weight) == (one.late, one.skipped, one.weight)
        assert (made.contributors, made.versions) == (one.contributors, one.versions)
        assert made.version == expected.version[rank]
        equal(made.model, one.model, exact=inner != "Adam")
        models[rank] = made.model
        seen["late" if one.late else "fresh"] += 1
        seen["skipped"] += one.skipped

    with team(size).train(name, inner, **how) as training:
        for rank in arrivals(expected, STEPS, seed=3):
            if rank is not None:
                one = expected.call(rank, own_step(rank))
                agrees(rank, training.arrive(rank), one)
                continue
            everybodys = expected.synchronise([own_step(r) for r in range(size)])
            for r, made in enumerate(training.together()):
                agrees(r, made, everybodys[r])
        mean = total(models) / size
        for made in training.together("synchronize"):
            equal(made.model, mean, exact=True)
            assert made.version == STEPS + 1
    return seen


def zeros(size: int) -> list[Vector]:
    return [np.zeros(COMMON + RARE)] * size


@pytest.mark.parametrize("missed", ["once", "fast-forward"])
@pytest.mark.parametrize("activation", ["group", "world"])
@pytest.mark.parametrize("fixed", [False, pytest.param(True, marks=LONG)])
def test_wagma_with_late_ranks(fixed: bool, activation: str, missed: str) -> None:
    expected = Model(
        zeros(8),
        4,
        period=10,
        window=10,
        activation=activation,
        fixed=fixed,
        fast_forward=missed == "fast-forward",
    )
    how = {"group_size": 4, "activation": activation, "missed": missed, "grace": 0}
    seen = scripted(expected, "momentum", "WAGMA", dynamic_groups=not fixed, **how)
    assert seen["late"] > 20
    assert seen["fresh"] > 20
    assert (seen["skipped"] > 0) == (missed == "fast-forward")


@pytest.mark.parametrize(("size", "inner"), [(2, "SGD"), (3, "momentum"), (4, "Adam"), (5, "SGD")])
def test_wagma_of_any_size(size: int, inner: str) -> None:
    expected = DynamicGroups(zeros(size), 2, period=7, activation="group", window=7)
    seen = scripted(expected, inner, "WAGMA", group_size=2, sync_period=7, grace=0)
    assert seen["late"] > 5


@pytest.mark.parametrize(
    ("size", "inner"), [(2, "momentum"), (3, "SGD"), (4, "Adam"), (5, "momentum"), (8, "SGD")]
)
def test_pairs(size: int, inner: str) -> None:
    expected = AnyGroups(zeros(size), 2, period=None, activation="group", window=64)
    seen = scripted(expected, inner, "ADPSGD", grace=0, seed=5)
    assert seen["late"] > 5


def test_one_rank_alone() -> None:
    for name in ("WAGMA", "ADPSGD"):
        follow(1, "Adam", Local(1, INNER["Adam"], 1), False, name)


# ---- gradients that come too late ----------------------------------------------------------------


def eager(size: int, inner: str, variant: str, seed: int) -> Counter[str]:
    """Trains beside the reference; returns how often what happened."""
    expected = Eager(size, INNER[inner])
    rng = random.Random(seed)
    speed = [rng.choice((1.0, 5.0, 30.0)) for _ in range(size)]
    seen: Counter[str] = Counter()

    def agrees(rank: int, made: Made) -> None:
        assert made.version == expected.version[rank]
        equal(made.model, expected.models[rank], exact=inner != "Adam")

    with team(size).train("EagerSGD", inner, variant=variant, grace=0, window=STEPS) as training:
        while True:
            free = [
                r for r in range(size) if r not in expected.present and expected.version[r] < STEPS
            ]
            if not free:
                break
            rank = rng.choices(free, [speed[r] for r in free])[0]
            late, before = expected.is_late(rank), expected.version[rank]
            expected.arrive(rank)
            made = training.arrive(rank)
            if late:
                assert made is not None and made.late
                agrees(rank, made)
                seen["late"] += 1
                seen["several"] += expected.version[rank] > before + 1
            elif variant == "majority" and rank != drawn(size, before):
                assert made is None
                seen["waits"] += 1
            else:
                for fresh in expected.start():
                    # Who started it waits as well where one that had waited reduces.
                    known = made if fresh == rank else None
                    one = training.made(fresh) if known is None else known
                    assert not one.late
                    agrees(fresh, one)
                    seen["fresh"] += 1
        assert not expected.present
        seen["carried"] = sum(carried is not None for carried in expected.carried)
        expected.synchronize()
        for rank, made in enumerate(training.together("synchronize")):
            agrees(rank, made)
    return seen


@pytest.mark.parametrize("size", [2, 5, *(pytest.param(n, marks=LONG) for n in (1, 3, 4, 8))])
@pytest.mark.parametrize("variant", ["solo", "majority"])
def test_eager(size: int, variant: str) -> None:
    seen = eager(size, "momentum", variant, seed=1)
    if size > 1:
        assert seen["late"] > 2
        assert (seen["waits"] > 0) == (variant == "majority")


@pytest.mark.parametrize("inner", ["SGD", "Adam"])
@pytest.mark.parametrize("variant", ["solo", "majority"])
def test_eager_with_other_optimizers(inner: str, variant: str) -> None:
    """Somebody got several results at once, and somebody's last gradient came too late."""
    seen = eager(4, inner, variant, seed=2)
    assert seen["several"] > 0
    assert seen["carried"] > 0
