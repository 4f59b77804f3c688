"""Arguments of simulations: what is wrong is named, with its value and the remedy."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from wagma.collectives._engine import MAX_RANKS
from wagma.simulate import NETWORKS, Network, Workload, method, simulate
from wagma.simulate.network import FREE

ONES = np.ones((3, 4))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((np.full((2, 2), np.nan),), r"compute\[0, 0\] is nan: a finite number"),
        (([[1.0, -1.0]],), r"compute\[0, 1\] is -1.0: .* leave the version out"),
        (([[1.0, 2.0], [1.0]],), "compute has rows of 1, 2 times: give every rank the same"),
        ((np.ones(3),), r"compute has the shape \(3,\): \(ranks, versions\) is needed"),
        (([[0.0, 0.0], [1.0, 1.0]],), r"compute\[0\] is 0 at every version: .* leave the rank out"),
        ((ONES, np.ones((3, 5, 2))), r"micro_batches has the shape \(3, 5, 2\)"),
        ((ONES, None, -1), "model_bytes is -1: at least 0"),
    ],
)
def test_workloads_are_checked(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Workload(*arguments)


def test_faults_are_not_delays() -> None:
    with pytest.raises(ValueError, match="only delays are simulated"):
        Workload.injected("paper:1:0.3,kill:1:3", 0.1, 4, 10)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("wagmi", {}, "unknown method 'wagmi': choose from wagma"),
        ("sgp9999", {}, "unknown method 'sgp9999'"),
        ("auto", {}, "auto is not simulated: .* simulate these, or leave it out"),
        ("wagma", {"groupsize": 3}, "wagma has no option 'groupsize': options are group_size"),
        ("dpsgd", {"window": 3}, "dpsgd has no option 'window': it has no options"),
        ("wagma", {"group_size": 0}, "group_size is 0: at least 1"),
        ("wagma", {"grace": -1.0}, "grace is -1.0: a finite number"),
        ("wagma", {"grace": "some"}, "grace='some' must be \"auto\""),
        ("wagma", {"activation": "all"}, "activation='all' must be 'group' or 'world'"),
    ],
)
def test_methods_are_checked(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        method(name, **options)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("ksync4", {}, "the workload has 3 ranks: ksync4 needs 4; give more"),
        ("k-sync3", {}, "needs 4"),
        ("dropcompute", {}, "micro_batches are unknown: dropcompute stops between"),
        ("dropcompute-local10", {}, "the workload has 4 versions: .* has periods of 10"),
        ("wagma-ff", {"quorum": 2}, "missed='fast-forward' with quorum=2"),
    ],
)
def test_methods_need_what_a_workload_has(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        simulate(method(name, **options), Workload(ONES), FREE)


def test_a_missing_network_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="no network is given"):
        simulate(method("allreduce"), Workload(ONES), None)


def test_more_ranks_than_handles_have_are_warned_of_and_get_no_groups() -> None:
    many = Workload(np.ones((MAX_RANKS + 1, 1)))
    for name in ("wagma", "dpsgd"):
        with (
            pytest.warns(UserWarning, match=f"handles have at most {MAX_RANKS}"),
            pytest.raises(ValueError, match=f"{name} averages in groups or graphs"),
        ):
            simulate(method(name), many, FREE)
    with pytest.warns(UserWarning, match="was never compared"):
        assert simulate(method("allreduce"), many, FREE).seconds == 1.0


def test_networks_follow_loggp() -> None:
    network = Network(5e-6, 1e-6, 2e-6, 1e-9, 3e-10)
    size, ranks = 1 << 20, 16
    message = 5e-6 + 2e-6 + size * 1e-9
    assert network.doubling(size, ranks) == pytest.approx(4 * (message + size * 3e-10))
    ring = 2 * 15 * (7e-6 + size / 16 * 1e-9) + 15 * size / 16 * 3e-10
    assert network.ring(size, ranks) == pytest.approx(ring)
    halving = sum(
        7e-6 + size / 2**k * 1e-9 + (size / 2**k * 3e-10 if way == 0 else 0)
        for k in range(1, 5)
        for way in (0, 1)
    )
    assert network.halving(size, ranks) == pytest.approx(halving)
    assert network.allreduce(size, 1) == 0
    # Ranks of a node sum up in it, then one of each node exchanges.
    node = NETWORKS["node"]
    both = Network(5e-6, 1e-6, 2e-6, 1e-9, 3e-10, ranks_per_node=8, intra=node)
    expected = node.allreduce(size, 8) + network.flat(size, 8) + node.message(size)
    assert both.allreduce(size, 64) == pytest.approx(expected)
    # A group's members are on different nodes, whose ranks share a link; all exchange at once.
    shared = Network(5e-6, 1e-6, 2e-6, 8e-9, 3e-10)
    assert both.group(size, 16, 64) == pytest.approx(shared.flat(size, 16))
    assert both.group(size, 4, 8) == pytest.approx(node.allreduce(size, 4))
    # Arrays of neighbours come one after the other.
    assert network.exchange(size, 3) == pytest.approx(7e-6 + 2 * 2e-6 + 3 * size * 1.3e-9)
    with pytest.raises(ValueError, match=r"latency is -1\.0"):
        Network(-1.0, 0.0, 0.0, 0.0)


def test_injected_delays_are_those_of_inject() -> None:
    from wagma.inject import parse

    work = Workload.injected("paper:1:0.3", 0.1, 4, 6, seed=2, micro_batches=2)
    table = parse("paper:1:0.3", 4, 2).table(12)
    assert work.micro_batches is not None
    assert work.micro_batches[:, 1, 0] == pytest.approx(0.05 + table[2])
    assert work.compute == pytest.approx(work.micro_batches.sum(axis=2))


def test_profiles_keep_what_is_slow_together() -> None:
    rng = np.random.default_rng(0)
    common = 1.0 + np.repeat(rng.exponential(1.0, 40), 10)  # slow together, for ten versions
    compute = np.array([[1.0], [2.0], [4.0]]) * common
    profile = SimpleNamespace(
        compute=compute, input=np.zeros_like(compute), micro_batches=None, model_bytes=7
    )
    work = Workload.from_profile(profile, ranks=7, versions=1000, seed=1)
    assert (work.ranks, work.versions, work.model_bytes) == (7, 1000, 7)
    assert work.compute[1] == pytest.approx(2 * work.compute[0])  # of one set of copies
    assert not np.allclose(work.compute[3], work.compute[0])  # of another
    ratio = work.compute[5].mean() / work.compute[3].mean()
    assert ratio == pytest.approx(4.0)

    def lagged(row: Any) -> float:
        return float(np.corrcoef(row[:-1], row[1:])[0, 1])

    assert lagged(work.compute[0]) == pytest.approx(lagged(common), abs=0.1)
    assert work.compute[0].mean() == pytest.approx(common.mean(), rel=0.1)
    again = Workload.from_profile(profile, ranks=7, versions=1000, seed=1)
    assert np.array_equal(again.compute, work.compute)
