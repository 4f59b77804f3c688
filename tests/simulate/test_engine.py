"""Simulated trainings against formulas, and against events played one by one."""

import heapq
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from wagma.collectives.topology import groups, neighbors
from wagma.simulate import METHODS, Method, Network, Workload, method, simulate
from wagma.simulate.costs import Costs
from wagma.simulate.graph import senders_of
from wagma.simulate.network import FREE
from wagma.theory.ksync import simulate as simulate_server
from wagma.theory.ksync import update_time
from wagma.theory.replay import replay

SLOW = Network(1e-3, 1e-4, 2e-4, 1e-8, 2e-9)


def exponential(ranks: int, versions: int, seed: int = 0, parts: int | None = None) -> Workload:
    rng = np.random.default_rng(seed)
    if parts is None:
        return Workload(0.2 + rng.exponential(1.0, (ranks, versions)))
    each = 0.05 + rng.exponential(1.0, (ranks, versions, parts))
    return Workload(each.sum(axis=2), each)


def names(ranks: int) -> list[str]:
    several = [f"{name}2" for name in ("ksync", "kasync", "k-sync", "k-async", "k-batch-sync")]
    more = [*several, "k-batch-async2", "local3", "diloco-overlap4", "diloco-groups4"]
    return [name for name in (*METHODS, *more) if method(name).least_ranks() <= ranks]


# ---- formulas ------------------------------------------------------------------------------------


def test_all_wait_for_all_in_allreduce() -> None:
    work = exponential(7, 50)
    found = simulate(method("allreduce"), work, FREE)
    assert found.seconds == pytest.approx(work.compute.max(axis=0).sum())
    assert found.throughput == pytest.approx(7 * 50 / found.seconds)
    assert found.waited.sum() == pytest.approx(7 * found.seconds - work.compute.sum())
    assert (found.late, found.staleness, found.dropped, found.consensus) == (0, 0, 0, 0)
    large = Workload(work.compute, model_bytes=1 << 20, sync_bytes=1 << 21)
    slow = simulate(method("allreduce"), large, SLOW)
    assert slow.seconds == pytest.approx(found.seconds + 50 * SLOW.allreduce(1 << 21, 7))


def test_nobody_waits_without_synchronisation_and_grace() -> None:
    work = exponential(6, 40)
    chosen = method("wagma-nosync", grace=0.0, window=40)
    found = simulate(chosen, work, FREE)
    assert found.seconds == pytest.approx(work.compute.sum(axis=1).max())
    assert found.waited.max() == 0


def test_local_sgd_waits_for_the_slowest_period() -> None:
    work = exponential(5, 60)
    periods = work.compute.reshape(5, 20, 3).sum(axis=2)
    found = simulate(method("local3"), work, FREE)
    assert found.seconds == pytest.approx(periods.max(axis=0).sum())
    # Of H independent steps, the k-th leaves models sqrt(k) updates apart; 0 after the average.
    expected = math.sqrt((1 + 2 + 0) / 3 * (1 - 1 / 5))
    long = simulate(method("local3"), exponential(5, 3000), FREE).consensus
    assert long == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("k", [1, 3, 7])
def test_k_sync_takes_the_kth_of_the_learners(k: int) -> None:
    work = exponential(8, 400)
    found = simulate(method(f"k-sync{k}"), work, FREE)
    ordered = np.sort(work.compute[:-1], axis=0)
    assert found.seconds == pytest.approx(ordered[k - 1].sum())
    assert found.throughput == pytest.approx(400 * k / found.seconds)


@pytest.mark.parametrize("name", ["k-sync", "k-batch-sync", "k-async", "k-batch-async"])
def test_servers_are_as_fast_as_in_theory(name: str) -> None:
    from scipy import stats

    rng = np.random.default_rng(3)
    updates, learners, k = 4000, 6, 2
    work = Workload(rng.exponential(1.0, (learners + 1, updates)))
    found = simulate(method(f"{name}{k}"), work, FREE)
    theory = update_time(name, stats.expon(), learners, k)
    played = simulate_server(name, stats.expon(), learners, k, updates, rng)
    assert 1 / found.versions_per_second == pytest.approx(theory.mean, rel=0.06)
    assert found.staleness == pytest.approx(played.staleness.mean(), abs=0.06)


@pytest.mark.parametrize("quorum", [1, 2, 5, 6])
def test_k_sync_without_a_server_is_replayed(quorum: int) -> None:
    work = exponential(6, 300)
    found = simulate(method(f"ksync{quorum}", window=300), work, FREE)
    played = replay(np.ascontiguousarray(work.compute.T), quorum, 0.0)
    # A rank that is late in the last version ends after it.
    assert 0 <= found.seconds - 300 * played.seconds < work.compute.max()
    assert found.late == pytest.approx(played.late_share, abs=0.01)


def test_k_sync_stops_between_micro_batches() -> None:
    """Give up after 1 s or 2 s: one learner takes 1 s, the other 3 s in three parts."""
    parts = np.array([[[1.0, 0, 0]] * 4, [[0.9, 0.5, 1.6]] * 4, [[1.0, 0, 0]] * 4])
    work = Workload(parts.sum(axis=2), parts)
    served = simulate(method("k-sync1"), work, FREE)
    # The slow learner begins again at 1.4, 2.3 and 3.2 s; the fast one ends at 1, 2, 3 and 4 s.
    assert served.seconds == pytest.approx(4.1)
    alone = simulate(method("ksync2"), Workload(work.compute, parts), FREE)
    assert alone.seconds == pytest.approx(4.1)
    assert alone.throughput * alone.seconds == pytest.approx(8)


@pytest.mark.parametrize("name", ["k-async1", "k-batch-async1", "kasync1"])
def test_ranks_end_with_what_they_compute(name: str) -> None:
    """Updates at 1, 2 and 2.5 s, of which that at 2.5 s is the slow rank's: the other ends at 3."""
    compute = np.repeat([[1.0], [2.5], [1.0]], 3, axis=1)
    ranks = 2 if name == "kasync1" else 3  # the last one is the server
    found = simulate(method(name), Workload(compute[:ranks]), FREE)
    assert found.seconds == pytest.approx(3.0)


def test_drop_compute_drops_what_comes_after_the_threshold() -> None:
    work = exponential(4, 100, parts=6)
    assert work.micro_batches is not None
    ends = work.micro_batches.cumsum(axis=2)
    tau = 5.0
    whole = simulate(method("dropcompute-preempt", threshold=tau), work, FREE)
    assert whole.seconds == pytest.approx(np.minimum(ends[:, :, -1], tau).max(axis=0).sum())
    assert whole.dropped == pytest.approx(1 - np.mean(ends < tau))
    between = simulate(method("dropcompute", threshold=tau), work, FREE)
    begun = ends - work.micro_batches < tau
    assert between.dropped == pytest.approx(1 - begun.mean())
    assert between.seconds == pytest.approx(np.where(begun, ends, 0).max(axis=2).max(axis=0).sum())
    never = simulate(method("dropcompute", threshold=math.inf), work, FREE)
    assert never.seconds == pytest.approx(simulate(method("allreduce"), work, FREE).seconds)


def test_cannikin_lets_unequal_ranks_end_together() -> None:
    means = np.array([1.0, 2.0, 4.0, 1.0])
    work = Workload(np.tile(means[:, np.newaxis], (1, 200)))
    found = simulate(method("cannikin", calibration_steps=1), work, FREE)
    best = 4 / np.sum(1 / means)  # of a step, all of whose ranks end together
    assert found.seconds == pytest.approx(4.0 + 199 * best, rel=1e-9)


# ---- events, one by one --------------------------------------------------------------------------


def spread(members: int) -> dict[tuple[int, int], int]:
    """Return how many messages after member i each member j hears of a version: [i, j]."""
    dimensions = math.ceil(math.log2(members)) if members > 1 else 0
    two = members == 1 << dimensions
    found: dict[tuple[int, int], int] = {}
    for start in range(members):
        queue = [(0, start, 0)]  # messages, member, dimensions that are open to it
        for hops, member, above in queue:
            if (start, member) not in found:
                found[start, member] = hops
            for d in range(above, dimensions):
                to = member ^ 1 << d if two else (member + (1 << d)) % members
                queue.append((hops + 1, to, d + 1))
    return found


def play_groups(
    chosen: Method, compute: Any, group_size: int, costs: Costs, grace: float
) -> tuple[float, int, list[float]]:
    """Play WAGMA, event by event: seconds, late calls, seconds waited."""
    ranks, versions = compute.shape
    of = [groups(ranks, group_size, v) for v in range(versions)]
    period, window = chosen.sync_period, chosen.default_window(ranks)
    version, called = [0] * ranks, [[math.inf] * versions for _ in range(ranks)]
    present: dict[Any, list[int]] = {}
    pinned: dict[Any, float] = {}
    waited, since = [0.0] * ranks, [0.0] * ranks
    late, end, number = 0, 0.0, 0

    def syncs(version: int) -> bool:
        return period is not None and (version + 1) % period == 0

    queue: list[Any] = []

    def push(time: float, kind: int, what: Any) -> None:
        nonlocal number
        number += 1
        heapq.heappush(queue, (time, kind, number, what))

    def go_on(now: float, rank: int) -> None:
        nonlocal end
        version[rank] += 1
        end = max(end, now)
        if version[rank] < versions:
            push(now + compute[rank, version[rank]], 0, rank)

    def pin(now: float, key: Any) -> None:
        pinned[key] = now
        for rank in present[key]:
            waited[rank] += now - since[rank]
            go_on(now + (costs.world if syncs(key[0]) else costs.group), rank)

    for rank in range(ranks):
        push(compute[rank, 0], 0, rank)
    held: list[int] = []
    held_at: dict[int, float] = {}  # first arrivals
    while queue:
        now, kind, _, what = heapq.heappop(queue)
        if kind == 1:
            if what not in pinned:
                pin(now, what)
            continue
        rank, now_version = what, version[what]
        if rank not in held_at:
            held_at[rank] = now
        back = now_version - window
        if back >= 0 and max(row[back] for row in called) == math.inf:
            held.append(rank)
            continue
        waited[rank] += now - held_at.pop(rank)
        since[rank] = called[rank][now_version] = now
        for other in held:
            push(now, 0, other)
        held = []
        if syncs(now_version):
            group = tuple(range(ranks))
        else:
            group = next(g for g in of[now_version] if rank in g)
        key = (now_version, group)
        if key in pinned:
            hears = (
                pinned[key]
                + costs.signal * spread(len(group))[group.index(present[key][0]), group.index(rank)]
            )
            if now <= hears:
                go_on(pinned[key] + costs.group, rank)
                continue
            late += 1
            go_on(max(now, pinned[key] + costs.group) + costs.late, rank)
            continue
        present.setdefault(key, []).append(rank)
        if syncs(now_version):
            if len(present[key]) == ranks:
                pin(now, key)
        elif len(present[key]) == 1:
            near = [r for r in group if now_version == 0 or called[r][now_version - 1] <= now]
            if len(near) == 1:
                pin(now, key)
            else:
                push(now + grace, 1, key)
        else:
            first = called[present[key][0]][now_version]
            near = [r for r in group if now_version == 0 or called[r][now_version - 1] <= first]
            if all(called[r][now_version] <= now for r in near):
                pin(now, key)
    return end, late, waited


@pytest.mark.parametrize("grace", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("ranks", "group_size"), [(8, 4), (6, 3), (5, 2), (4, 4)])
def test_groups_are_those_of_events(ranks: int, group_size: int, grace: float) -> None:
    work = Workload(exponential(ranks, 60, seed=ranks).compute, model_bytes=1 << 20)
    for period, window in ((10, None), (None, 3), (7, 2)):
        chosen = method(
            *("wagma",), grace=grace, sync_period=period, window=window, group_size=group_size
        )
        costs = Costs.of(chosen, work, SLOW)
        seconds, late, waited = play_groups(chosen, work.compute, group_size, costs, grace)
        found = simulate(chosen, work, SLOW)
        assert found.seconds == pytest.approx(seconds)
        assert found.late == pytest.approx(late / work.compute.size)
        assert found.waited == pytest.approx(np.array(waited))


def test_grace_0_leaves_one_fresh_member_of_a_group() -> None:
    work = exponential(8, 40)
    found = simulate(method("wagma-nosync", group_size=4, grace=0.0), work, FREE)
    assert found.late == pytest.approx(3 / 4)


def test_carried_gradients_count_when_an_average_has_them() -> None:
    """Rank 1 needs 2.6 times as long as rank 0: it is never in time, or soon after version 15."""
    compute = np.repeat([[1.0], [2.6]], 30, axis=1)
    chosen = method("eager-solo", grace=0.3)
    never = simulate(chosen, Workload(compute), FREE)
    assert never.throughput * never.seconds == pytest.approx(30)  # of rank 0
    assert never.dropped == pytest.approx(never.late) and never.late > 0.2
    compute[1, 15:] = 0.9
    at_last = simulate(chosen, Workload(compute), FREE)
    assert at_last.dropped == 0 and at_last.staleness > 0.5
    compute[1, 25:] = 2.6  # as late as at first, and at the end with less to bring
    again = simulate(chosen, Workload(compute), FREE)
    assert again.dropped == 0 and again.late > at_last.late
    compute[1, :15] = 0.9  # never late before: what it carries at the end may go on for ever
    at_end = simulate(chosen, Workload(compute), FREE)
    assert at_end.dropped == pytest.approx(at_end.late) and at_end.late > 0.05


def test_fast_forward_without_lateness_is_the_same() -> None:
    work = exponential(8, 60)
    calm = Workload(1 + 1e-5 * work.compute)
    chosen = {"grace": 1.0, "sync_period": 10}
    once = simulate(method("wagma", **chosen), calm, FREE)
    jumps = simulate(method("wagma-ff", **chosen), calm, FREE)
    assert (once.late, jumps.late) == (0, 0)
    assert jumps.seconds == pytest.approx(once.seconds)
    assert jumps.throughput == pytest.approx(once.throughput)


def test_fast_forward_jumps_to_the_newest_average() -> None:
    """Rank 1 computes 2.5 s for version 0, of which ranks 0 has made 0 and 1 by then."""
    compute = np.ones((2, 5))
    compute[1, 0] = 2.5
    found = simulate(method("wagma-ff", group_size=2, grace=0.0), Workload(compute), FREE)
    # Rank 1: late at 2.5 s, goes on with version 2 until 3.5 s, when rank 0 has made version 2.
    # Late again, it goes on with version 3 until 4.5 s, and then with version 4, until 5.5 s.
    assert found.seconds == pytest.approx(5.5)
    assert found.throughput * found.seconds == pytest.approx(5 + 4)
    assert found.late == pytest.approx(4 / 9)


@pytest.mark.parametrize("name", ["dpsgd", "sgp1", "sgp2"])
def test_a_rank_waits_for_its_neighbours(name: str) -> None:
    work, chosen = exponential(6, 30), method(name)
    ends = np.zeros(6)
    for version in range(30):
        calls = ends + work.compute[:, version]
        shares = neighbors(6, chosen.graph, chosen.neighbors, version)
        ends = np.array([max(calls[sender] for sender in row) for row in shares])
        senders = senders_of(chosen, 6, version)
        assert [sorted({*row, r}) for r, row in enumerate(senders.tolist())] == [
            sorted(row) for row in shares
        ]
    assert simulate(chosen, work, FREE).seconds == pytest.approx(ends.max())


# ---- all methods ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names(8))
def test_equal_arguments_give_equal_results(name: str) -> None:
    work = exponential(8, 120, parts=3)
    work = Workload(work.compute, work.micro_batches, model_bytes=1 << 16)
    first, second = (simulate(method(name), work, SLOW, seed=5) for _ in range(2))
    for key, value in vars(first).items():
        assert np.array_equal(value, vars(second)[key]), key
    assert 0 <= first.late <= 1 and 0 <= first.dropped <= 1
    assert np.all(first.waited >= 0)
    assert first.waited.max() <= first.seconds


def test_needs_neither_torch_nor_mpi() -> None:
    code = (
        "import sys, wagma.simulate; sys.exit(bool({'torch', 'mpi4py', 'scipy'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
