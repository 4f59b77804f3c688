"""Models learned online, beside clusters whose times are known."""

import json
import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from wagma.theory.cannikin import (
    ClusterModel,
    NodeModel,
    PerformanceLearner,
    batch_time,
    choose_total_batch,
    combine_gamma,
    distinct_batches,
    integer_batches,
)

Floats = npt.NDArray[np.float64]
# q, s, k, m of four nodes, in seconds.
TRUE = np.array(
    [
        [0.4e-3, 5e-3, 1e-3, 8e-3],
        [0.9e-3, 9e-3, 2e-3, 9e-3],
        [0.2e-3, 1e-3, 0.7e-3, 2e-3],
        [1.0e-3, 6e-3, 3.4e-3, 20e-3],
    ]
)
GAMMA, OVERLAP, LAST = 0.2, 0.06, 0.01


class Cluster:
    """Nodes that measure with relative errors, and can be slowed."""

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        self.slowed, self.noise = np.ones(len(TRUE)), noise
        self.rng = np.random.default_rng(seed)

    @property
    def numbers(self) -> Floats:
        return TRUE * self.slowed[:, None]

    def model(self) -> ClusterModel:
        nodes = tuple(NodeModel(*row) for row in self.numbers.tolist())
        return ClusterModel(nodes, GAMMA, OVERLAP, LAST)

    def epoch(self, learner: PerformanceLearner, batches: Any) -> None:
        """Observe what an epoch with these batches measures."""
        q, s, k, m = self.numbers.T
        error = 1 + self.noise * self.rng.standard_normal((2, len(TRUE)))
        sizes = np.asarray(batches, float)
        waited = self.rng.uniform(0, 0.1, len(TRUE)) * (np.arange(len(TRUE)) != 2)
        learner.observe(
            sizes,
            (q * sizes + s) * error[0],
            (k * sizes + m) * error[1],
            gammas=np.full(len(TRUE), GAMMA),
            overlap_times=OVERLAP + waited,
            last_bucket_times=LAST + waited,
        )


def numbers(learner: PerformanceLearner) -> Floats:
    return np.array([(n.q, n.s, n.k, n.m) for n in learner.cluster().nodes])


def times(rows: Floats, batches: Any) -> Floats:
    return np.asarray((rows[:, 0] + rows[:, 2]) * np.asarray(batches) + rows[:, 1] + rows[:, 3])


def test_two_batches_give_the_model() -> None:
    cluster, learner = Cluster(), PerformanceLearner(4)
    cluster.epoch(learner, [16] * 4)
    assert learner.unknown == (0, 1, 2, 3)
    measured = times(TRUE, [16] * 4) / 16
    assert learner.sample_times() == pytest.approx(measured)
    cluster.epoch(learner, distinct_batches([16] * 4, learner.sample_times(), 64))
    assert learner.unknown == learner.changed == ()
    assert numbers(learner) == pytest.approx(TRUE, rel=1e-9)
    found = learner.cluster()
    assert found.gamma == pytest.approx(GAMMA)
    assert (found.overlap_time, found.last_bucket_time) == (OVERLAP, LAST), "nobody waited for 2"


def test_more_batches_keep_an_exact_model() -> None:
    cluster, learner = Cluster(), PerformanceLearner(4)
    for _ in range(40):
        cluster.epoch(learner, cluster.rng.integers(5, 80, 4))
        assert learner.changed == ()
    assert numbers(learner) == pytest.approx(TRUE, rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_errors_of_measurement(seed: int) -> None:
    """1 % of the times: predictions within 3 %, and standard errors that say how good they are."""
    cluster, learner = Cluster(0.01, seed), PerformanceLearner(4)
    apart = []
    for epoch in range(60):
        cluster.epoch(learner, cluster.rng.integers(8, 64, 4))
        assert learner.changed == ()
        if epoch > 10:
            assert times(numbers(learner), [30] * 4) == pytest.approx(
                times(TRUE, [30] * 4), rel=0.03
            )
            errors = learner.errors()
            expected = np.array([errors.q, errors.s, errors.k, errors.m]).T
            apart.append((numbers(learner) - TRUE) / expected)
    # Errors are presumed to be those of a + P: they are larger than those of a.
    assert np.abs(apart).max() < 4
    assert 0.3 < np.std([rows[:, 2:] for rows in apart]) < 1.1


@pytest.mark.parametrize("factor", [1.06, 3.0, 0.5])
def test_another_speed_is_seen_though_the_batch_stays(factor: float) -> None:
    cluster, learner = Cluster(0.01, 5), PerformanceLearner(4)
    batches = [12, 9, 30, 5]
    cluster.epoch(learner, [20, 20, 20, 20])
    for _ in range(30):
        cluster.epoch(learner, batches)
        assert learner.changed == ()
    before = numbers(learner)
    cluster.slowed[1] = factor
    cluster.epoch(learner, batches)
    assert learner.changed == (1,)
    # All of the node's numbers have changed by the same, and no other node's.
    assert numbers(learner)[1] == pytest.approx(before[1] * factor, rel=0.05)
    assert numbers(learner)[[0, 2, 3]] == pytest.approx(before[[0, 2, 3]], rel=0.05)
    cluster.epoch(learner, batches)
    assert times(numbers(learner), batches) == pytest.approx(
        times(cluster.numbers, batches), rel=0.03
    )
    # Also at other batches, which it will get next.
    assert times(numbers(learner), [16] * 4) == pytest.approx(
        times(cluster.numbers, [16] * 4), rel=0.08
    )


def test_a_slow_drift_is_followed() -> None:
    cluster, learner = Cluster(0.003, 6), PerformanceLearner(4)
    cluster.epoch(learner, [20, 20, 20, 20])
    for _ in range(40):
        cluster.epoch(learner, [12, 9, 30, 5])
        cluster.slowed[2] *= 1.01
    assert times(numbers(learner), [12, 9, 30, 5]) == pytest.approx(
        times(cluster.numbers, [12, 9, 30, 5]), rel=0.05
    )


def test_far_batches_are_remembered() -> None:
    """Batches that hardly differ do not tell a slope: the first ones still do, much later."""
    apart = []
    for seed in range(12):
        rng, learner = np.random.default_rng(seed), PerformanceLearner(1)
        for batch in [20, 100, *rng.integers(46, 55, 60).tolist()]:
            seconds = (0.2 + 0.001 * batch) * (1 + 0.01 * rng.standard_normal())
            learner.observe([batch], [0], [seconds])
        apart.append(learner.cluster().nodes[0].k / 0.001 - 1)
    assert np.abs(apart).mean() < 0.15


@pytest.mark.long
def test_large_errors_are_not_taken_for_other_speeds() -> None:
    cluster, learner = Cluster(0.08, 7), PerformanceLearner(4)
    changes = 0
    for epoch in range(300):
        cluster.epoch(learner, [20] * 4 if epoch % 2 else [12, 9, 30, 5])
        changes += len(learner.changed) if epoch > 20 else 0
    assert changes < 0.02 * 280 * 4


def test_a_cluster_is_planned_from_the_third_epoch_on() -> None:
    """Even split, (8), then the best plan; a node that slows has its share two epochs later."""
    cluster, learner = Cluster(0.005, 8), PerformanceLearner(4, min_batches=[1] * 4)
    cluster.epoch(learner, [32] * 4)
    cluster.epoch(learner, distinct_batches([32] * 4, learner.sample_times(), 128))
    for epoch in range(20):
        if epoch == 8:
            cluster.slowed[2] = 2.5
        plan = integer_batches(learner.cluster(), 128)
        took = batch_time(cluster.model(), plan.batches)
        if epoch not in (8, 9):
            assert plan.time == pytest.approx(took, rel=0.03)
            assert took <= 1.04 * integer_batches(cluster.model(), 128).time
        cluster.epoch(learner, plan.batches)


def test_planning_is_quick() -> None:
    """From 16 nodes' observations to the best of 32 total batches."""
    learner, rng, took = PerformanceLearner(16), np.random.default_rng(12), []
    candidates = np.geomspace(64, 8192, 32).astype(int).tolist()
    for _ in range(10):
        sizes = rng.integers(8, 64, 16)
        learner.observe(sizes, 0.001 * sizes, 0.02 + 0.003 * sizes, overlap_times=[0.02] * 16)
        if learner.unknown:
            continue
        began = time.process_time()
        choice = choose_total_batch(learner.cluster(), candidates, 500.0, 64)
        took.append(time.process_time() - began)
    assert choice.total_batch in candidates
    assert min(took) < 0.01


@pytest.mark.parametrize(
    ("a", "P", "expected"),
    [
        ((6.0, 4.0), (10.0, 20.0), (0, 4.4, 1, 0)),  # a falls: it is constant
        ((1.0, 4.0), (10.0, 21.0), (0.16, 0, 1, 0)),  # both start below 0: through 0
        ((1.0, 2.0), (10.0, 10.0), (0.1, 0, 0.07, 9)),  # P is constant: at least a tenth of P / b
    ],
)
def test_fits_that_make_no_sense(a: Any, P: Any, expected: Any) -> None:
    learner = PerformanceLearner(1, forgetting=1)
    for batch, before, backward in zip((10, 20), a, P, strict=True):
        learner.observe([batch], [before], [backward])
    node = learner.cluster().nodes[0]
    assert [node.q, node.s, node.k, node.m] == pytest.approx(expected, rel=0.35, abs=1e-12)
    assert node.k > 0


def test_communication() -> None:
    learner = PerformanceLearner(2)
    for batch in (4, 8):
        learner.observe([batch] * 2, [batch] * 2, [batch] * 2)
    assert learner.cluster() == ClusterModel(learner.cluster().nodes, 1.0, 0.0, 0.0)
    rng = np.random.default_rng(9)
    for _ in range(50):
        gammas = np.clip(
            [0.3 + 0.001 * rng.standard_normal(), 0.5 + 0.2 * rng.standard_normal()], 0, 1
        )
        learner.observe([8, 8], [8, 8], [8, 8], gammas=gammas, last_bucket_times=[2, 1])
    assert learner.cluster().gamma == pytest.approx(0.3, abs=0.1), "the other measures badly"
    assert learner.cluster().last_bucket_time == 1
    learner.observe([0, 8], [0, 8], [0, 8], gammas=[0, 0.5], overlap_times=[3, 4])
    assert learner.cluster().overlap_time == 3


def test_combine_gamma() -> None:
    assert combine_gamma([0.2, 0.5], [1e-4, 4e-4]) == pytest.approx(0.26)
    assert combine_gamma([0.2, 0.4, 0.9], [0, 0, 1e-4]) == pytest.approx(0.3)
    assert combine_gamma([0.2, 0.6], [1e-320, 1e-320]) == pytest.approx(0.4)
    with pytest.raises(ValueError, match=r"gammas\[1\] is 1.5: at most 1"):
        combine_gamma([0.2, 1.5], [1, 1])
    with pytest.raises(ValueError, match=r"variances\[0\] is -1.0"):
        combine_gamma([0.2, 0.5], [-1, 1])


def test_a_state_goes_on() -> None:
    cluster, learner = Cluster(0.02, 10), PerformanceLearner(4)
    for _ in range(12):
        cluster.epoch(learner, cluster.rng.integers(5, 80, 4))
    loaded = PerformanceLearner(4)
    loaded.load_state_dict(json.loads(json.dumps(learner.state_dict())))
    other = Cluster(0.02, 10)
    other.rng.bit_generator.state = cluster.rng.bit_generator.state
    for _ in range(12):
        cluster.epoch(learner, [10, 20, 30, 40])
        other.epoch(loaded, [10, 20, 30, 40])
    assert loaded.cluster() == learner.cluster()
    assert loaded.state_dict() == learner.state_dict()
    with pytest.raises(ValueError, match="state is of 4 nodes, and this learner has 3"):
        PerformanceLearner(3).load_state_dict(learner.state_dict())
    with pytest.raises(ValueError, match="state has no gammas, "):
        loaded.load_state_dict({"nodes": []})


def test_limits_are_the_models() -> None:
    learner = PerformanceLearner(2, max_batches=[9, None], min_batches=[1, 0])
    for batch in (4, 8):
        learner.observe([batch] * 2, [1] * 2, [batch] * 2)
    limits = [(node.min_batch, node.max_batch) for node in learner.cluster().nodes]
    assert limits == [(1, 9), (0, None)]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"batches": [1, 2, 3]}, "batches has the shape"),
        ({"batches": [-1, 2]}, r"batches\[0\] is -1.0"),
        ({"a": [1, math.inf]}, r"a\[1\] is inf"),
        ({"P": [0, 1]}, r"P\[0\] is 0.0 with a batch above 0"),
        ({"gammas": [0.5, 1.5]}, r"gammas\[1\] is 1.5: at most 1"),
        ({"overlap_times": [math.nan, 1]}, r"overlap_times\[0\] is nan"),
    ],
)
def test_bad_observations_change_nothing(given: dict[str, Any], says: str) -> None:
    learner = PerformanceLearner(2)
    state = learner.state_dict()
    with pytest.raises(ValueError, match=says):
        learner.observe(**{"batches": [4, 4], "a": [1, 1], "P": [1, 1]} | given)
    assert learner.state_dict() == state


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="nodes is 0: at least 1"):
        PerformanceLearner(0)
    with pytest.raises(ValueError, match=r"forgetting is 0\.0: more than 0"):
        PerformanceLearner(2, forgetting=0)
    with pytest.raises(ValueError, match="max_batches has 1 limits"):
        PerformanceLearner(2, max_batches=[3])
    with pytest.raises(ValueError, match="min_batch is 4: at most 3"):
        PerformanceLearner(1, max_batches=[3], min_batches=[4])
    learner = PerformanceLearner(2)
    learner.observe([4, 0], [1, 0], [1, 0])
    with pytest.raises(ValueError, match="node 1 has not been observed yet"):
        learner.sample_times()
    learner.observe([8, 4], [2, 1], [2, 1])
    with pytest.raises(ValueError, match="nodes 1 have not been observed with two"):
        learner.cluster()
