"""Plans of uneven batches, beside a linear program, exact fractions and brute force."""

import math
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from wagma.theory.cannikin import (
    ClusterModel,
    NodeModel,
    OptPerf,
    adascale,
    batch_time,
    choose_total_batch,
    distinct_batches,
    goodput,
    initial_batches,
    integer_batches,
    opt_perf,
    sqrt_scaling,
)

quick = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
fixed_times = st.sampled_from([0.0, 1.0]) | st.floats(1e-3, 10)


@st.composite
def nodes(draw: st.DrawFn, largest: int = 40) -> NodeModel:
    q, k = draw(st.just(0.0) | st.floats(1e-3, 10)), draw(st.floats(1e-3, 10))
    least = draw(st.sampled_from([0, 0, 1, 3]))
    most = draw(st.none() | st.integers(max(least, 1), largest))
    return NodeModel(q, draw(fixed_times), k, draw(fixed_times), most, least)


@st.composite
def problems(draw: st.DrawFn, nodes_most: int = 6, most: int = 60) -> tuple[ClusterModel, int]:
    """A cluster, and a total batch that its limits allow for."""
    members = draw(st.lists(nodes(), min_size=1, max_size=nodes_most))
    gamma = draw(st.sampled_from([0.0, 1.0]) | st.floats(0, 1))
    cluster = ClusterModel(tuple(members), gamma, draw(fixed_times), draw(fixed_times))
    low = max(1, sum(node.min_batch for node in members))
    high = sum(most if node.max_batch is None else node.max_batch for node in members)
    return cluster, draw(st.integers(low, min(max(low, most), high)))


def capacity(
    cluster: ClusterModel, limit: Any, *, integers: bool = False, exact: type = Fraction
) -> Any:
    """The most samples that all nodes can take in so much time, -1 if one can not take part."""
    total, gamma, limit = exact(0), exact(cluster.gamma), exact(limit)
    last, overlap = exact(cluster.last_bucket_time), exact(cluster.overlap_time)
    for node in cluster.nodes:
        q, s, k, m = exact(node.q), exact(node.s), exact(node.k), exact(node.m)
        taken = (limit - last - s - m) / (q + k)
        rest = limit - last - overlap - s - gamma * m
        if q + gamma * k > 0:
            taken = min(taken, rest / (q + gamma * k))
        elif rest < 0:
            return -1
        if taken < node.min_batch:
            return -1
        taken = taken if node.max_batch is None else min(taken, exact(node.max_batch))
        total += math.floor(taken) if integers else taken
    return total


def check_plan(cluster: ClusterModel, plan: OptPerf, total: float) -> None:
    """The batches keep to their limits, and take the time that is promised."""
    assert plan.batches.sum() == pytest.approx(total, rel=1e-12)
    for node, batch in zip(cluster.nodes, plan.batches, strict=True):
        assert node.min_batch <= batch <= (node.max_batch or math.inf)
    assert plan.time == batch_time(cluster, plan.batches)


def is_least(cluster: ClusterModel, seconds: float, total: float, **options: Any) -> bool:
    """Whether no plan is faster, by more than 1e-9 of the time."""
    return bool(capacity(cluster, Fraction(seconds) * (1 - Fraction(1, 10**9)), **options) < total)


def linear_program(cluster: ClusterModel, total: float) -> float:
    """The least T with b_i within their limits, sum b_i = B, and both of (7)'s lines below T."""
    rows, right = [], []
    for i, node in enumerate(cluster.nodes):
        for share, wait in ((1.0, 0.0), (cluster.gamma, cluster.overlap_time)):
            row = np.zeros(len(cluster.nodes) + 1)
            row[i], row[-1] = node.q + share * node.k, -1
            rows.append(row)
            right.append(-(node.s + share * node.m + wait + cluster.last_bucket_time))
    found = linprog(
        c=[0.0] * len(cluster.nodes) + [1.0],
        A_ub=rows,
        b_ub=right,
        A_eq=[[1.0] * len(cluster.nodes) + [0.0]],
        b_eq=[total],
        bounds=[*((node.min_batch, node.max_batch) for node in cluster.nodes), (None, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.success, found.message
    return float(found.fun)


def divisions(total: int, limits: list[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """Every way to divide a total batch in integers."""
    if not limits:
        if total == 0:
            yield ()
        return
    low, high = limits[0]
    for first in range(low, min(high, total) + 1):
        for rest in divisions(total - first, limits[1:]):
            yield (first, *rest)


# ---- the optimum ---------------------------------------------------------------------------------


@quick
@given(problems())
def test_no_division_is_faster(problem: tuple[ClusterModel, int]) -> None:
    cluster, total = problem
    plan = opt_perf(cluster, total)
    check_plan(cluster, plan, total)
    assert is_least(cluster, plan.time, total)
    assert plan.time == pytest.approx(linear_program(cluster, total), rel=1e-8)


@quick
@given(problems(nodes_most=4, most=10))
def test_no_division_in_integers_is_faster(problem: tuple[ClusterModel, int]) -> None:
    cluster, total = problem
    plan = integer_batches(cluster, total)
    check_plan(cluster, plan, total)
    assert plan.batches.dtype == np.int64
    assert plan.batches.sum() == total
    limits = [(n.min_batch, total if n.max_batch is None else n.max_batch) for n in cluster.nodes]
    least = min(batch_time(cluster, division) for division in divisions(total, limits))
    assert plan.time == least
    assert opt_perf(cluster, total).time <= least * (1 + 1e-12)


def random_nodes(count: int, **limits: int) -> tuple[NodeModel, ...]:
    rows = np.random.default_rng(3).uniform(
        [0, 0.01, 1e-3, 0.01], [2e-3, 0.1, 1e-2, 0.2], (count, 4)
    )
    return tuple(NodeModel(*row, **limits) for row in rows.tolist())


def test_ten_thousand_nodes() -> None:
    members, total = random_nodes(10_000, max_batch=60), 323_457
    took = []
    for _ in range(5):
        cluster = ClusterModel(members, 0.25, 0.15, 0.01)
        began = time.process_time()
        plan = opt_perf(cluster, total)
        took.append(time.process_time() - began)
    check_plan(cluster, plan, total)
    assert is_least(cluster, plan.time, total, exact=float)
    assert set(plan.bottlenecks) == {"compute", "communication"}
    assert 0 < (plan.batches == 60).sum() < 10_000
    assert min(took) < 0.1
    whole = integer_batches(cluster, total)
    check_plan(cluster, whole, total)
    assert is_least(cluster, whole.time, total, integers=True, exact=float)
    assert (whole.batches > plan.batches - 1 - 1e-6).all()


A, B = NodeModel(0.001, 0.02, 0.002, 0.03), NodeModel(0.002, 0.01, 0.004, 0.05)


def test_bottlenecks() -> None:
    """Sec. 3.3: those of one kind end at the same time, and all of them at the last bucket."""
    compute = opt_perf(ClusterModel((A, B), 0.2, 0.0, 0.01), 90)
    assert compute.bottlenecks == ("compute", "compute")
    # 0.003 a + 0.05 = 0.006 b + 0.06, a + b = 90
    assert compute.batches == pytest.approx([55 / 0.9, 26 / 0.9])
    assert compute.time == pytest.approx(0.003 * 55 / 0.9 + 0.05 + 0.01)
    communication = opt_perf(ClusterModel((A, B), 0.2, 10.0, 0.01), 90)
    assert communication.bottlenecks == ("communication", "communication")
    # 0.0014 a + 0.026 = 0.0028 b + 0.02, a + b = 90
    assert communication.batches == pytest.approx([246 / 4.2, 132 / 4.2])
    mixed = opt_perf(ClusterModel((A, NodeModel(0.02, 0.01, 0.004, 0.05)), 0.2, 0.15, 0.01), 90)
    assert mixed.bottlenecks == ("compute", "communication")
    first, second = mixed.batches
    assert mixed.time == pytest.approx(0.003 * first + 0.05 + 0.01)
    assert mixed.time == pytest.approx(0.0208 * second + 0.02 + 0.15 + 0.01)


def test_a_slow_node_gets_nothing() -> None:
    """Its fixed times count all the same: then only the time is unique."""
    slow = NodeModel(0.001, 5.0, 0.001, 0.0)
    plan = opt_perf(ClusterModel((A, slow), 0.5, 0.0, 0.0), 90)
    assert (plan.time, plan.batches.tolist()) == (5.0, [90.0, 0.0])
    even = opt_perf(ClusterModel((A, A, slow), 0.5, 0.0, 0.0), 90)
    assert even.batches == pytest.approx([45, 45, 0]), "the others are filled to one level"


def test_limits_are_active() -> None:
    small = NodeModel(0.0001, 0.0, 0.0001, 0.0, max_batch=20)
    asked = NodeModel(1.0, 0.0, 1.0, 0.0, min_batch=2)
    plan = opt_perf(ClusterModel((small, A, asked), 0.5, 0.0, 0.0), 90)
    assert plan.batches == pytest.approx([20, 68, 2])
    assert plan.time == pytest.approx(4)


def test_one_node_takes_all() -> None:
    plan = integer_batches(ClusterModel((A,), 0.2, 0.0, 0.0), 7)
    assert plan.batches.tolist() == [7]
    assert plan.time == pytest.approx(0.003 * 7 + 0.05)


def test_initial_batches() -> None:
    assert initial_batches([1, 2, 4], 70).tolist() == [40, 20, 10]
    assert initial_batches([1, 2, 4], 70, [30, 100, 100]).tolist() == [30, 27, 13]
    assert initial_batches([0.3], 5).tolist() == [5]
    times = np.random.default_rng(1).uniform(0.1, 1, 50)
    found = initial_batches(times, 3000)
    assert found.sum() == 3000
    assert (found > 3000 / times / (1 / times).sum() - 1).all()


@pytest.mark.long
@quick
@given(
    st.lists(st.tuples(st.integers(4, 50), st.floats(0.5, 2)), min_size=2, max_size=9),
    st.floats(0.8, 1.25),
)
def test_distinct_batches(nodes: list[tuple[int, float]], growth: float) -> None:
    previous, sample_times = map(list, zip(*nodes, strict=True))
    total = round(sum(previous) * growth)
    found = distinct_batches(previous, sample_times, total)
    assert found.sum() == total
    for before, batch in zip(previous, found.tolist(), strict=True):
        assert batch >= 1
        assert not 0.75 * before < batch < 1.25 * before


def test_distinct_batches_are_those_of_the_speeds() -> None:
    assert distinct_batches([32, 32], [1, 3], 64).tolist() == [48, 16]
    assert distinct_batches([16] * 4, [1] * 4, 64).tolist() == [20, 20, 12, 12]
    assert distinct_batches([16] * 4, [1] * 4, 64, [16] * 3 + [60]).tolist() == [12, 12, 12, 28]
    with pytest.raises(ValueError, match="total_batch is 8: it can not be divided"):
        distinct_batches([8], [1], 8)
    assert distinct_batches([8], [1], 10).tolist() == [10]


# ---- the total batch -----------------------------------------------------------------------------

CANDIDATES = np.unique(np.geomspace(64, 8192, 32).astype(int)).tolist()


@pytest.mark.long
@quick
@given(
    problems(),
    st.sampled_from([0.0, math.inf]) | st.floats(0, 1000),
    st.lists(st.integers(0, 40), min_size=1, max_size=8),
)
def test_the_best_candidate(
    problem: tuple[ClusterModel, int], scale: float, more: list[int]
) -> None:
    cluster, total = problem
    most = sum(node.max_batch or 200 for node in cluster.nodes)
    candidates = [min(total + apart, most) for apart in more]
    choice = choose_total_batch(cluster, candidates, scale, 16)
    plans = [integer_batches(cluster, candidate) for candidate in candidates]
    goodputs = [
        goodput(candidate, plan.time, scale, 16)
        for candidate, plan in zip(candidates, plans, strict=True)
    ]
    assert choice.goodput == pytest.approx(max(goodputs), rel=1e-12)
    assert choice.total_batch in candidates
    plan = integer_batches(cluster, choice.total_batch)
    assert choice.plan.time == plan.time
    assert choice.plan.batches.tolist() == plan.batches.tolist()
    assert choice.goodput == goodput(choice.total_batch, plan.time, scale, 16)


def test_more_noise_asks_for_larger_batches() -> None:
    cluster = ClusterModel(random_nodes(16), 0.25, 0.15, 0.01)
    chosen = [
        choose_total_batch(cluster, CANDIDATES, scale, 64).total_batch
        for scale in (0, 30, 300, 3000, math.inf)
    ]
    assert chosen == sorted(chosen)
    assert len(set(chosen)) > 3
    assert chosen[-1] == CANDIDATES[-1]


def test_goodput_and_learning_rates() -> None:
    assert goodput(64, 0.5, 1e3, 64) == 128
    assert goodput(256, 0.5, 300, 100) == pytest.approx(512 * 400 / 556)
    assert goodput(256, 0.5, math.inf, 100) == 512
    trace, sqnorm = 30.0, 0.2
    gain = (trace / 100 + sqnorm) / (trace / 256 + sqnorm)
    assert adascale(256, trace / sqnorm, 100) == pytest.approx(gain)
    assert (adascale(256, 0, 100), adascale(256, math.inf, 128)) == (1, 2)
    assert sqrt_scaling(400, 100) == 2


# ---- bad input -----------------------------------------------------------------------------------

PAIR = ClusterModel((NodeModel(1, 1, 1, 1, 8, 2), NodeModel(1, 1, 1, 1, 4, 1)), 0.5, 1, 1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: NodeModel(-1, 1, 1, 1), "q is -1.0: a finite number, at least 0"),
        (lambda: NodeModel(1, math.nan, 1, 1), "s is nan: a finite number"),
        (lambda: NodeModel(1, 1, 0, 1), "k is 0.0: a finite number, more than 0"),
        (lambda: NodeModel(1, 1, 1, math.inf), "m is inf: a finite number"),
        (lambda: NodeModel(1, 1, 1, 1, 0), "max_batch is 0: at least 1"),
        (lambda: NodeModel(1, 1, 1, 1, 4, 5), "min_batch is 5: at most 4"),
        (lambda: ClusterModel((), 0.5, 1, 1), "nodes is empty"),
        (lambda: ClusterModel((A,), 1.5, 1, 1), "gamma is 1.5: at most 1"),
        (lambda: ClusterModel((A,), 0.5, -1, 1), "overlap_time is -1.0"),
        (lambda: ClusterModel((A,), 0.5, 1, math.inf), "last_bucket_time is inf"),
        (lambda: batch_time(PAIR, [1, 2, 3]), r"batches has the shape \(3,\): \(2,\) is needed"),
        (lambda: batch_time(PAIR, [1, -2]), r"batches\[1\] is -2.0"),
        (lambda: opt_perf(PAIR, 0), "total_batch is 0.0: a finite number of samples above 0"),
        (lambda: opt_perf(PAIR, 2.5), "total_batch is 2.5: the nodes' min_batch add up to 3"),
        (lambda: integer_batches(PAIR, 2), "total_batch is 2: the nodes' min_batch add up to 3"),
        (lambda: integer_batches(PAIR, 13), "total_batch is 13: the nodes' max_batch add up to 12"),
        (lambda: initial_batches([1, 0], 8), r"sample_times\[1\] is 0.0: .* more than 0"),
        (lambda: initial_batches([1, 1], 8, [2, 2.5]), r"max_batches\[1\] is 2.5"),
        (lambda: initial_batches([1, 1], 8, [2, 3]), "max_batch add up to 5"),
        (lambda: choose_total_batch(PAIR, [], 1, 1), "candidates is empty"),
        (lambda: choose_total_batch(PAIR, [5, 13], 1, 1), "total_batch is 13"),
        (lambda: choose_total_batch(PAIR, [5], -1, 1), "noise_scale is -1.0: at least 0"),
        (lambda: choose_total_batch(PAIR, [5], math.nan, 1), "noise_scale is nan"),
        (lambda: goodput(5, 0, 1, 1), "time is 0.0: a finite number, more than 0"),
        (lambda: adascale(5, 1, 0), "base_batch is 0.0"),
    ],
)
def test_bad_values(call: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


def test_bad_types() -> None:
    with pytest.raises(TypeError, match=r"nodes\[1\] is 3: a NodeModel"):
        ClusterModel((A, 3), 0.5, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"total_batch is 2\.5: an integer"):
        integer_batches(PAIR, 2.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="q is 'fast': a number"):
        NodeModel("fast", 1, 1, 1)  # type: ignore[arg-type]
