"""Planners, against clusters that are known and times that are measured with errors."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wagma.theory.cannikin import (
    ClusterModel,
    Measured,
    NodeModel,
    NoiseScale,
    Plan,
    Planner,
    batch_time,
    make_planner,
    opt_perf,
)

SPEEDS = np.array([1.0, 1.0, 2.0, 3.4])


def cluster_of(speeds: Any = SPEEDS) -> ClusterModel:
    """Nodes that take so many times as long per sample."""
    nodes = tuple(NodeModel(0.001 * s, 0.004, 0.002 * s, 0.006) for s in speeds)
    return ClusterModel(nodes, 0.3, 0.01, 0.002)


def measure(cluster: ClusterModel, plan: Plan, errors: Any, noise: Any = None) -> Measured:
    nodes, batches = cluster.nodes, plan.batches
    count = len(batches)

    def wrong(values: list[float]) -> list[float]:
        return list(np.array(values) * (1 + errors.normal(0, 0.005, count)))

    return Measured(
        batches,
        wrong([one.q * b + one.s for one, b in zip(nodes, batches, strict=True)]),
        wrong([one.k * b + one.m for one, b in zip(nodes, batches, strict=True)]),
        [cluster.gamma] * count,
        wrong([cluster.overlap_time] * count),
        wrong([cluster.last_bucket_time] * count),
        batch_time(cluster, batches),
        noise,
    )


def run(planner: Planner, epochs: int, cluster: ClusterModel | None = None) -> list[Plan]:
    errors = np.random.default_rng(1)
    plans = [planner.first()]
    for _ in range(epochs - 1):
        plans.append(planner.next(measure(cluster or cluster_of(), plans[-1], errors)))
    return plans


@pytest.mark.parametrize("total", [40, 200, 1000])
def test_the_third_epoch_is_the_fastest(total: int) -> None:
    cluster = cluster_of()
    plans = run(make_planner(4, total), 5)
    times = [batch_time(cluster, plan.batches) for plan in plans]
    best = opt_perf(cluster, total).time
    assert plans[0].batches == (total // 4,) * 4
    assert [plan.predicted is None for plan in plans] == [True, True, False, False, False]
    for plan, took in zip(plans[2:], times[2:], strict=True):
        assert took == pytest.approx(best, rel=0.04 if total == 40 else 0.015)
        assert plan.predicted == pytest.approx(took, rel=0.03)
        assert plan.total_batch == total
    assert times[0] > 1.3 * times[2]


@pytest.mark.parametrize("baseline", [None, "adaptdl"])
def test_what_the_nodes_see_too_little_of_is_predicted(baseline: Any) -> None:
    """Averaging that counts as waiting, and that another node is the slowest in each step."""
    cluster, errors = cluster_of(), np.random.default_rng(3)
    planner = make_planner(4, (200, 230) if baseline else 200, baseline=baseline)
    plan = planner.first()
    for _ in range(2):
        seen = measure(cluster, plan, errors, NoiseScale(1.0, 1.0))
        nothing, step = [1e-5] * 4, 0.02 + batch_time(cluster, plan.batches)
        seen = replace(seen, overlap_times=nothing, last_bucket_times=nothing, step=step)
        plan = planner.next(seen)
    assert plan.predicted == pytest.approx(0.02 + batch_time(cluster, plan.batches), rel=0.02)


def test_equal_nodes_and_one_alone_get_a_plan() -> None:
    equal = cluster_of([1, 1, 1])
    plans = run(make_planner(3, 60), 4, equal)
    assert plans[-1].predicted == pytest.approx(batch_time(equal, [20, 20, 20]), rel=0.03)
    assert run(make_planner(1, 60), 4, cluster_of([1]))[-1].batches == (60,)


@pytest.mark.parametrize(
    ("nodes", "smallest", "largest"), [(4, 4, 256), (2, 2, 1024), (1, 32, 256)]
)
def test_a_small_batch_grows_until_the_nodes_are_known(
    nodes: int, smallest: int, largest: int
) -> None:
    plans = run(make_planner(nodes, (smallest, largest)), 4, cluster_of(SPEEDS[:nodes]))
    assert plans[-1].predicted is not None


def test_what_cannot_be_divided_in_two_ways_keeps_its_plan() -> None:
    for speeds, total in (([1, 20], 2), ([1, 1, 1, 30], 5), ([1, 1, 1], 3)):
        plans = run(make_planner(len(speeds), total), 5, cluster_of(speeds))
        assert min(min(plan.batches) for plan in plans) == 1
        assert {sum(plan.batches) for plan in plans} == {total}


def test_limits_hold() -> None:
    plans = run(make_planner(4, 200, [40, None, None, 30]), 5)
    for plan in plans:
        assert plan.batches[0] <= 40
        assert plan.batches[3] <= 30
        assert sum(plan.batches) == 200


def test_lb_bsp_moves_five_samples() -> None:
    plans = run(make_planner(4, 200, baseline="lb-bsp"), 40)
    moves = [np.subtract(b.batches, a.batches) for a, b in itertools.pairwise(plans)]
    assert all(sorted(move) == [-5, 0, 0, 5] for move in moves)
    cluster = cluster_of()
    best = opt_perf(cluster, 200).time
    times = [batch_time(cluster, plan.batches) for plan in plans]
    assert times[2] > 1.3 * best
    assert min(times) == pytest.approx(best, rel=0.1)
    assert [sum(plan.batches) for plan in plans] == [200] * 40


@pytest.mark.parametrize("baseline", [None, "adaptdl"])
@pytest.mark.parametrize("scale", [20.0, 4000.0])
def test_the_total_batch_follows_the_noise(baseline: Any, scale: float) -> None:
    """Against all totals: B / T (noise + B0) / (noise + B)."""
    cluster, errors = cluster_of(), np.random.default_rng(2)
    planner = make_planner(4, (32, 2048), baseline=baseline)
    plan = planner.first()
    for _ in range(8):
        plan = planner.next(measure(cluster, plan, errors, NoiseScale(1.0, scale)))

    def progress(total: float) -> float:
        even = [total / 4] * 4
        took = opt_perf(cluster, total).time if baseline is None else batch_time(cluster, even)
        return total / took * (scale + 32) / (scale + total)

    best = max(progress(total) for total in range(32, 2049))
    assert progress(plan.total_batch) > 0.96 * best  # 1 % more is not worth another total
    assert plan.noise_scale == pytest.approx(scale)
    assert baseline is None or np.ptp(plan.batches) <= 1


@pytest.mark.parametrize("baseline", [None, "adaptdl"])
def test_the_total_batch_does_not_swing(baseline: Any) -> None:
    """Noise scales that vary leave it as it is; another one that stays does not."""
    cluster, errors = cluster_of(), np.random.default_rng(4)
    planner = make_planner(4, (32, 2048), baseline=baseline)
    plan, totals = planner.first(), []
    for epoch in range(40):
        scale = 300 * float(np.exp(errors.normal(0, 0.3))) if epoch < 30 else 3000.0
        plan = planner.next(measure(cluster, plan, errors, NoiseScale(1.0, scale)))
        totals.append(plan.total_batch)
    assert np.count_nonzero(np.diff(totals[8:30])) <= 2
    assert totals[-1] > 1.5 * totals[29]


def test_adaptdl_gives_each_rank_as_much() -> None:
    errors = np.random.default_rng(4)
    planner = make_planner(4, (32, 2048), baseline="adaptdl")
    plan = planner.first()
    for scale in (100.0, 100.0, 400.0, 1600.0, 6400.0):
        plan = planner.next(measure(cluster_of(), plan, errors, NoiseScale(1.0, scale)))
        assert len({*plan.batches}) == 1


def test_a_state_goes_on() -> None:
    for baseline in (None, "even", "lb-bsp", "adaptdl"):
        one, other = (make_planner(4, 200, baseline=baseline) for _ in range(2))  # type: ignore[arg-type]
        last = run(one, 4)[-1]
        other.load_state_dict(one.state_dict())
        measured = measure(cluster_of(), last, np.random.default_rng(5))
        assert one.next(measured) == other.next(measured)


def test_a_plan_says_what_it_is() -> None:
    assert str(Plan((3, 1))) == "4 = 3 + 1 samples, learning"
    assert str(Plan((1,) * 20, 0.25)).endswith("+ ... (20 ranks) samples, predicted 0.25 s")
