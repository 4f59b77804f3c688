"""The methods of the papers, each by its arguments, on real ranks, against the invariants.

A row of the table of methods is a class (or, for AD-PSGD, a choice of arguments), an averaged
quantity and a rule for late ranks. Contributions say which version of whom they are; delays make
ranks late by nothing, by a little, and by versions.
"""

import random
import re
from typing import Any

import delivered
import numpy as np
import pytest
import versioned
from mpi4py import MPI
from stalls import overdue, patient_creation, soon  # noqa: F401 (a fixture)
from teams import teams
from windows import ahead

from wagma.collectives import (
    GroupAllreduce,
    MajorityAllreduce,
    PartialAllreduce,
    PeerError,
    QuorumAllreduce,
    SoloAllreduce,
    StallError,
    SyncAllreduce,
    topology,
)

pytestmark = [pytest.mark.mpi, pytest.mark.any_arrays]


def uneven(rng: random.Random) -> float:
    return rng.choice((0.0, 0.0, 0.0, 0.0005, 0.003))


def replay(
    comm: MPI.Intracomm, plan: versioned.Plan, steps: int, coll: PartialAllreduce
) -> dict[str, int]:
    """Runs a plan of "stale" contributions; rank 0 checks the logs of all."""
    x = plan.contribution(comm.rank, -1)
    with coll:
        log = versioned.run(plan, comm.rank, coll, x, steps, delay=uneven)
    logs = comm.gather(log)
    return versioned.check(plan, logs) if logs is not None else {}


def deliver(comm: MPI.Intracomm, plan: delivered.Plan, coll: PartialAllreduce) -> dict[str, int]:
    """Runs a plan whose results reach everybody; rank 0 checks the logs of all."""
    with coll:
        log = delivered.run(plan, comm.rank, coll, delay=uneven)
    logs = comm.gather(log)
    return delivered.check(plan, logs) if logs is not None else {}


def blank(plan: versioned.Plan | delivered.Plan) -> np.ndarray:
    return np.zeros(plan.count, np.float32)


# ---- WAGMA-SGD: models, dynamic groups, one member starts, a late rank is stale ------------------


@pytest.mark.parametrize("missed", ["once", "fast-forward"])
@pytest.mark.parametrize("activation", ["group", "world"])
@pytest.mark.parametrize("grouping", ["dynamic", "fixed"])
def test_wagma(comm: MPI.Intracomm, grouping: Any, activation: Any, missed: Any) -> None:
    for team in teams(comm) if grouping == "dynamic" else (comm,):
        group_size = max(1, team.size // 2)
        plan = versioned.Plan(
            team.size,
            group_size,
            quorum=1,
            sync_period=10,
            window=10,
            grouping=grouping,
            activation=activation,
            fast_forward=missed == "fast-forward",
        )
        coll = GroupAllreduce(
            team,
            plan.contribution(team.rank, -1),
            group_size=group_size,
            sync_period=10,
            average=False,
            grace=0,
            grouping=grouping,
            activation=activation,
            missed=missed,
        )
        seen = replay(team, plan, 40, coll)
        if team.rank == 0 and group_size > 1:
            assert seen["late"] > 0
            assert missed == "fast-forward" or seen["calls"] == team.size * 41


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("quorum", [2, "all"])
def test_world_quorums(comm: MPI.Intracomm, quorum: Any) -> None:
    """The quorum of an activation by the world counts all ranks."""
    plan = versioned.Plan(
        comm.size,
        2,
        quorum=comm.size if quorum == "all" else quorum,
        sync_period=10,
        window=10,
        activation="world",
    )
    coll = PartialAllreduce(
        comm,
        plan.contribution(comm.rank, -1),
        group_size=2,
        quorum=quorum,
        sync_period=10,
        average=False,
        grace=0,
        activation="world",
    )
    seen = replay(comm, plan, 40, coll)
    if comm.rank == 0:
        assert (seen["late"] > 0) == (quorum != "all")


# ---- AD-PSGD: models, pairs drawn per version, one of the two starts -----------------------------


@pytest.mark.parametrize("missed", ["once", "fast-forward"])
def test_ad_psgd(comm: MPI.Intracomm, missed: Any) -> None:
    for team in teams(comm):
        pair = min(team.size, 2)
        plan = versioned.Plan(
            team.size,
            pair,
            quorum=1,
            window=12,
            grouping="pairs",
            seed=5,
            fast_forward=missed == "fast-forward",
        )
        coll = GroupAllreduce(
            team,
            plan.contribution(team.rank, -1),
            group_size=pair,
            window=12,
            average=False,
            grace=0,
            grouping="pairs",
            seed=5,
            missed=missed,
        )
        seen = replay(team, plan, 40, coll)
        if team.rank == 0 and team.size > 1:
            assert seen["late"] > 0


@pytest.mark.mpi(min_size=3)
def test_pairs_are_drawn_anew(comm: MPI.Intracomm) -> None:
    """Who is paired follows from the version and the seed; all meet all."""
    x = np.zeros(1, np.float32)
    met: set[int] = set()
    with PartialAllreduce(comm, x, grouping="pairs", seed=3) as coll:
        for version in range(80):
            outcome = coll.allreduce(x)
            mine = topology.group_of(comm.rank, comm.size, 2, version, grouping="pairs", seed=3)
            assert outcome.contributors == mine
            met.update(mine)
    assert met == set(range(comm.size))


# ---- Eager-SGD, solo: gradients, anybody starts, late ones are carried ---------------------------


@pytest.mark.parametrize("average", [True, False])
def test_eager_solo(comm: MPI.Intracomm, average: bool) -> None:
    for team in teams(comm):
        plan = delivered.Plan(team.size, "carry", quorum=1, steps=40, average=average)
        seen = deliver(team, plan, SoloAllreduce(team, blank(plan), average=average, grace=0))
        if team.rank == 0 and team.size > 1:
            assert seen["late"] > 0
            assert seen["most results"] > 1


# ---- Eager-SGD, majority: a drawn rank starts ----------------------------------------------------


@pytest.mark.parametrize("average", [True, False])
def test_eager_majority(comm: MPI.Intracomm, average: bool) -> None:
    for team in teams(comm):
        plan = delivered.Plan(team.size, "carry", quorum="majority", steps=40, average=average)
        coll = MajorityAllreduce(team, blank(plan), average=average, grace=0, seed=11)
        seen = deliver(team, plan, coll)
        if team.rank == 0 and team.size > 2:
            assert seen["late"] > 0


@pytest.mark.parametrize("activation", ["group", "world"])
def test_majority_of_models(comm: MPI.Intracomm, activation: Any) -> None:
    """In groups and with stale contributions as well."""
    group_size = max(1, comm.size // 2)
    plan = versioned.Plan(
        comm.size, group_size, quorum=1, sync_period=10, window=10, activation=activation
    )
    coll = PartialAllreduce(
        comm,
        plan.contribution(comm.rank, -1),
        group_size=group_size,
        quorum="majority",
        sync_period=10,
        average=False,
        grace=0,
        activation=activation,
    )
    replay(comm, plan, 40, coll)


def mix(x: int) -> int:
    """The engine's, csrc/base/mix.h."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = ((x ^ x >> shift) * factor) % 2**64
    return x ^ x >> 31


def drawn(seed: int, version: int, group: tuple[int, ...]) -> int:
    """The member of a group that starts a version; the engine counts from 1."""
    return min(group, key=lambda rank: mix(seed ^ mix(version + 1 ^ mix(group[0] << 32 | rank))))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("late", ["stale", "skip", "carry"])
@pytest.mark.parametrize("half", [False, True])
def test_only_the_drawn_rank_is_needed(comm: MPI.Intracomm, late: Any, half: bool) -> None:
    """The last rank calls nothing: the others get to the first version for which it is drawn."""
    last, steps = comm.size - 1, 5
    group_size = max(2, comm.size // 2) if half else comm.size
    group = topology.group_of(last, comm.size, group_size, 0, grouping="fixed")
    seed = next(
        seed
        for seed in range(1 << 20)
        if [drawn(seed, version, group) == last for version in range(steps + 1)]
        == [False] * steps + [True]
    )
    x = np.ones(3, np.float32)
    with PartialAllreduce(
        comm,
        x,
        group_size=group_size,
        grouping="fixed",
        quorum="majority",
        late=late,
        window=2 * (steps + 1),
        grace=0,
        timeout=30,
        seed=seed,
    ) as coll:
        if comm.rank in group and comm.rank != last:
            try:
                while coll.version < steps:
                    coll.allreduce(x)
                request = coll.iallreduce(x)
                # Over messages it does not know who of the others has been drawn and not come.
                named = f"rank {last}" if coll.transport == "shm" else rf"ranks? (.*[ -])?{last}"
                assert re.search(rf"version {steps} .* {named}, which", overdue(request, 0.05))
            finally:
                comm.Barrier()
            assert last in request.wait().contributors
        else:
            comm.Barrier()
            while comm.rank == last and coll.version <= steps:
                coll.allreduce(x)


# ---- K-sync, fastest-k: gradients, k ranks start, late ones are left out -------------------------


@pytest.mark.parametrize("k", range(1, 9))
def test_k_sync(comm: MPI.Intracomm, k: int) -> None:
    if k > comm.size:
        pytest.skip(f"k={k} of {comm.size} ranks")
    for team in teams(comm, least=k):
        average = (team.size + k) % 2 == 0
        plan = delivered.Plan(team.size, "skip", k, steps=30, average=average, weights=True)
        coll = QuorumAllreduce(team, blank(plan), k, average=average, grace=0)
        seen = deliver(team, plan, coll)
        if team.rank == 0:
            assert (seen["late"] > 0) == (k < team.size)


# ---- Allreduce-SGD, Local SGD: all start ---------------------------------------------------------


def test_allreduce_sgd(comm: MPI.Intracomm) -> None:
    for team in teams(comm):
        plan = versioned.Plan(team.size, team.size, team.size)
        coll = SyncAllreduce(team, plan.contribution(team.rank, -1), average=False)
        seen = replay(team, plan, 30, coll)
        if team.rank == 0:
            assert seen["late"] == 0


@pytest.mark.parametrize("late", ["skip", "carry"])
def test_nobody_is_late_where_all_start(comm: MPI.Intracomm, late: Any) -> None:
    """The rule for late ranks makes no difference then, and results are delivered all the same."""
    plan = delivered.Plan(comm.size, late, comm.size, steps=20)
    seen = deliver(comm, plan, SyncAllreduce(comm, blank(plan), average=False, late=late))
    if comm.rank == 0:
        assert seen["late"] == 0
        assert seen["most results"] == 1


# ---- the other combinations of increments --------------------------------------------------------


@pytest.mark.parametrize("late", ["skip", "carry"])
@pytest.mark.parametrize("group_size", [1, 2, 3])
def test_increments_in_groups(comm: MPI.Intracomm, late: Any, group_size: int) -> None:
    if group_size > comm.size:
        pytest.skip(f"groups of {group_size} of {comm.size} ranks")
    plan = delivered.Plan(comm.size, late, 1, steps=40, group_size=group_size, sync_period=9)
    coll = PartialAllreduce(
        comm,
        blank(plan),
        group_size=group_size,
        quorum=1,
        late=late,
        sync_period=9,
        average=False,
        grace=0,
    )
    deliver(comm, plan, coll)


@pytest.mark.parametrize("late", ["skip", "carry"])
@pytest.mark.parametrize("window", [1, 3])
def test_windows(comm: MPI.Intracomm, late: Any, window: int) -> None:
    """So many results are kept: no call delivers more."""
    plan = delivered.Plan(comm.size, late, 1, steps=40, window=window)
    coll = PartialAllreduce(
        comm, blank(plan), quorum=1, late=late, window=window, average=False, grace=0
    )
    seen = deliver(comm, plan, coll)
    if comm.rank == 0:
        assert seen["most results"] <= window + 1


def test_weights_of_what_is_carried(comm: MPI.Intracomm) -> None:
    """What was missed comes at the weight that it had."""
    plan = delivered.Plan(comm.size, "carry", 1, steps=40, weights=True)
    deliver(comm, plan, SoloAllreduce(comm, blank(plan), average=False, grace=0))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("late", ["skip", "carry"])
def test_a_rank_that_comes_last_gets_everything_at_once(comm: MPI.Intracomm, late: Any) -> None:
    """The others may be a window ahead, not more; then rank 0 gets all of it in one call."""
    window = 5
    x = np.zeros(comm.size, np.float32)
    given = 1
    with SoloAllreduce(comm, x, late=late, window=window, average=False, grace=0) as coll:
        reach = ahead(coll, window)
        made = np.zeros((reach, comm.size), np.float32)
        if comm.rank > 0:
            while coll.version < reach:
                x[:] = 0
                x[comm.rank] = coll.version + 1
                given += coll.version + 1
                outcome = coll.allreduce(x)
                made[outcome.version : coll.version] = outcome.results
        comm.Barrier()
        if comm.rank == 0:
            x[:] = 0
            x[0] = 100
            outcome = coll.allreduce(x)
            assert (outcome.late, outcome.version, coll.version) == (True, 0, reach)
            made[:] = outcome.results
            assert (x == made[-1]).all()
            assert not made[:, 0].any()
        x[:] = 0
        x[comm.rank] = 1
        outcome = coll.sync(x)  # rank 0 is needed: if it failed above, all fail here
        assert not outcome.late
    assert len({row.tobytes() for row in comm.allgather(made)}) == 1
    assert x[0] == (101 if late == "carry" else 1)
    if late == "carry":
        total = made.sum(0) + x
        assert (total[1:] == comm.allgather(given)[1:]).all()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("late", ["skip", "carry"])
@pytest.mark.usefixtures("patient_creation")
def test_results_that_nobody_fetches(comm: MPI.Intracomm, late: Any) -> None:
    """The window closes: the others wait for the rank that does not fetch them, and say so."""
    window = 3
    x = np.zeros(2, np.float32)
    coll = SoloAllreduce(comm, x, late=late, window=window, timeout=soon(comm), grace=0)
    stalled = False
    if comm.rank > 0:
        # Over messages the one whose time is over first has failed for one that came later.
        errors = (StallError, PeerError) if coll.transport == "mpi" else StallError
        with pytest.raises(errors, match=r"rank 0|ranks 0") as caught:
            for _ in range(window + 1):
                coll.allreduce(x)
        stalled = caught.type is StallError
        reach = ahead(coll, window)
        assert coll.version == reach if stalled else coll.version <= reach
    assert any(comm.allgather(stalled))
    coll.fail()
