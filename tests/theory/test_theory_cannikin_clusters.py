"""The paper's clusters as models: ratios, scale, and which nodes are picked."""

import numpy as np
import pytest
from scipy.optimize import linprog

from wagma.theory.cannikin import ClusterModel, batch_time, opt_perf
from wagma.theory.cannikin.clusters import ClusterName, cluster, made_cluster, shared_times, subset

NAMES: tuple[ClusterName, ...] = ("A", "B", "C")


def sample_times(model: ClusterModel) -> list[float]:
    return [node.q + node.k for node in model.nodes]


def least_time(model: ClusterModel, total: float) -> float:
    """The least T of all divisions, as a linear program in b_1, ..., b_n, T."""
    rows, right = [], []
    for i, node in enumerate(model.nodes):
        for share, comm in ((1.0, 0.0), (model.gamma, model.overlap_time)):
            row = np.zeros(len(model.nodes) + 1)
            row[i], row[-1] = node.q + share * node.k, -1
            rows.append(row)
            right.append(-(node.s + share * node.m + comm + model.last_bucket_time))
    ones = np.append(np.ones(len(model.nodes)), 0)
    cost = np.append(np.zeros(len(model.nodes)), 1)
    return float(linprog(cost, rows, right, [ones], [total]).fun)


@pytest.mark.parametrize("name", NAMES)
def test_the_best_step_takes_what_was_asked_for(name: ClusterName) -> None:
    for step, batch, nodes in ((1.0, 512, None), (0.2, 96, 3), (3.0, 7, 2)):
        model = cluster(name, step_time=step, batch=batch, nodes=nodes)
        assert least_time(model, batch) == pytest.approx(step, rel=1e-7)
        best = opt_perf(model, batch)
        assert best.time == pytest.approx(step, rel=1e-12)
        assert set(best.bottlenecks) == {"compute"}
        assert set(opt_perf(model, 0.3 * batch).bottlenecks) == {"communication"}
    slow = cluster(name, overlap=0.7)
    assert least_time(slow, 512) == pytest.approx(1, rel=1e-7)
    assert slow.overlap_time == 0.7
    assert "communication" in opt_perf(slow, 512).bottlenecks


def test_the_ratios_are_the_papers() -> None:
    a, b, c = (sample_times(cluster(name)) for name in NAMES)
    assert np.array(a) / a[0] == pytest.approx([1, 768 / 448, 768 / 243])
    assert np.array(b) / b[0] == pytest.approx([1] * 4 + [77.97 / 31.4] * 4 + [3.42] * 8)
    shares = c[0] / np.array(c)
    assert (shares[0], shares[-1], len(shares)) == (1, pytest.approx(0.25), 16)
    assert np.diff(shares) == pytest.approx(np.full(15, -0.05))
    for node in (node for name in NAMES for node in cluster(name).nodes):
        assert node.m / node.s == pytest.approx(2)
    # What is neither forward nor backward is loading: half of backward is forward.
    pairs: tuple[tuple[ClusterName, list[int]], ...] = (
        ("A", [18, 10, 4]),
        ("B", [20] * 4 + [10] * 4 + [24] * 8),
    )
    for name, cores in pairs:
        loading = [node.q - node.k / 2 for node in cluster(name).nodes]
        expected = sample_times(cluster(name))[0] * 4 / np.array(cores)
        assert loading == pytest.approx(expected)


def test_an_even_split_takes_as_long_as_the_slowest_node() -> None:
    model = made_cluster(shared_times(4, 0.1), [24] * 4, step_time=2.0, batch=40)
    node = model.nodes[-1]
    slowest = 10 * (node.q + node.k) + node.s + node.m + model.last_bucket_time
    assert batch_time(model, [10] * 4) == pytest.approx(slowest)
    assert slowest > 4


def test_nodes_are_picked_evenly() -> None:
    whole = cluster("B")
    picked = subset(whole, 4)
    assert picked.nodes == tuple(whole.nodes[i] for i in (0, 5, 10, 15))
    assert (picked.gamma, picked.overlap_time) == (whole.gamma, whole.overlap_time)
    assert picked.last_bucket_time == whole.last_bucket_time
    assert subset(whole, 16) == whole
    assert subset(whole, 1).nodes == whole.nodes[:1]
    assert len(cluster("A", nodes=2).nodes) == 2


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="name is 'D': one of A, B, C is needed"):
        cluster("D")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"least_share is 0\.0"):
        shared_times(2, 0.0)
    for wrong in (0, 17):
        with pytest.raises(ValueError, match="nodes"):
            subset(cluster("B"), wrong)
    for option in ("step_time", "batch"):
        with pytest.raises(ValueError, match=option):
            cluster("A", **{option: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sample_times"):
        made_cluster([1, 0], [9, 9])
    with pytest.raises(ValueError, match=r"cores\[1\] is too few .* more than 2 are needed"):
        made_cluster([1, 2], [9, 2])
    with pytest.raises(ValueError, match=r"overlap is 0\.9: at most 0\.8"):
        cluster("A", overlap=0.9)
