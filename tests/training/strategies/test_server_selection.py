"""Which gradients a parameter server takes, against a simulation that knows nothing of it."""

import heapq

import numpy as np
import pytest

from wagma.collectives.parameter_server.selection import METHODS, Action, Kind, Selection, Unused


def play(method: str, k: int, learners: int, updates: int, seed: int = 0) -> Selection:
    """Learners with exponential times of computation, and a server that takes no time."""
    rng = np.random.default_rng(seed)
    selection = Selection(method, k, learners)
    versions = [0] * learners
    queue = [(rng.exponential(), learner) for learner in range(learners)]
    heapq.heapify(queue)
    now = 0.0

    def go_on(actions: list[Action]) -> None:
        for action in actions:
            if action.kind is Kind.GIVE:
                versions[action.learner] = selection.version
                start(action.learner)
            if action.kind is Kind.TELL:  # ends what it computes, and asks for the new version
                queue[:] = [entry for entry in queue if entry[1] != action.learner]
                heapq.heapify(queue)
                go_on([selection.offer(action.learner, versions[action.learner])])

    def start(learner: int) -> None:
        heapq.heappush(queue, (now + rng.exponential(), learner))

    while selection.version < updates:
        now, learner = heapq.heappop(queue)
        action = selection.offer(learner, versions[learner])
        if action.kind is Kind.TAKE:
            actions = selection.add(action)
            if not action.waits:
                start(learner)
            go_on(actions)
        else:
            go_on([action])
    selection.ended = now  # type: ignore[attr-defined]
    return selection


def harmonic(n: int) -> float:
    return sum(1 / i for i in range(1, n + 1))


@pytest.mark.parametrize(("learners", "k"), [(8, 1), (8, 3), (8, 8), (5, 2), (1, 1)])
@pytest.mark.parametrize("method", METHODS)
def test_times_and_staleness_are_those_of_the_paper(method: str, learners: int, k: int) -> None:
    """Dutta et al., Sec. 3: with exponential times all four are known exactly."""
    updates = 4000
    selection = play(method, k, learners, updates)
    per_update = selection.ended / updates  # type: ignore[attr-defined]
    order_statistic = harmonic(learners) - harmonic(learners - k)
    expected = order_statistic if method in ("k-sync", "k-async") else k / learners
    assert per_update == pytest.approx(expected, rel=0.06)
    counts = selection.counts
    assert counts.used == updates * k
    staleness = {"k-async": learners / k - 1, "k-batch-async": (learners - 1) / k}.get(method, 0.0)
    assert counts.staleness / counts.used == pytest.approx(staleness, rel=0.06, abs=0.01)


def take(selection: Selection, learner: int, version: int) -> list[Action]:
    action = selection.offer(learner, version)
    assert action.kind is Kind.TAKE
    return selection.add(action)


def kinds(actions: list[Action]) -> list[tuple[Kind, int]]:
    return [(action.kind, action.learner) for action in actions]


def test_k_sync_cancels_the_rest_and_tells_once() -> None:
    selection = Selection("k-sync", 2, 4)
    assert take(selection, 2, 0) == []
    made = kinds(take(selection, 0, 0))
    gives = [(Kind.APPLY, -1), (Kind.GIVE, 0), (Kind.GIVE, 2)]
    assert made == [*gives, (Kind.TELL, 1), (Kind.TELL, 3)]
    take(selection, 2, 1)
    assert kinds(take(selection, 0, 1)) == gives
    assert selection.offer(1, 0) == Action(Kind.GIVE, 1, unused=Unused.CANCELLED)
    assert (selection.version, selection.counts.cancelled) == (2, 1)


@pytest.mark.parametrize("method", ["k-sync", "k-async"])
def test_who_waits_for_a_version_that_cannot_come_goes_on(method: str) -> None:
    selection = Selection(method, 2, 3)
    take(selection, 0, 0)
    assert selection.pause(1) == []
    drop, give = selection.pause(2)
    assert (drop.kind, give) == (Kind.DROP, Action(Kind.GIVE, 0, unused=Unused.DROPPED))
    assert selection.offer(0, 0) == give
    selection.offer(0, 0, empty=True)
    assert (selection.counts.dropped, selection.counts.used, selection.counts.up) == (2, 0, 1)
    selection.pause(0)
    assert selection.is_over()
    assert kinds(selection.synchronize()) == [(Kind.GIVE, learner) for learner in range(3)]
    assert not selection.is_over()


def test_learners_that_are_lost() -> None:
    selection = Selection("k-async", 2, 3)
    take(selection, 0, 0)
    assert selection.lose(0) == []  # what it gave stays
    assert kinds(take(selection, 1, 0)) == [(Kind.APPLY, -1), (Kind.GIVE, 1)]
    assert not selection.is_short()
    selection.lose(2)
    assert selection.is_short()
    batch = Selection("k-batch-async", 2, 3)
    batch.lose(0)
    batch.lose(1)
    assert not batch.is_short()


def test_a_lost_gradient_and_an_empty_one() -> None:
    selection = Selection("k-batch-async", 2, 2)
    assert selection.offer(0, 0).kind is Kind.TAKE
    selection.lose(0)  # while it sent
    assert kinds(take(selection, 1, 0)) == [(Kind.GIVE, 1)]
    action = selection.offer(1, 0)
    assert kinds(selection.add(action, empty=True)) == [(Kind.APPLY, -1), (Kind.GIVE, 1)]
    assert (selection.counts.up, selection.counts.used) == (1, 1)
    take(selection, 1, 1)  # the training ends without its version
    selection.pause(1)
    selection.synchronize()
    assert (selection.counts.used, selection.counts.dropped) == (1, 1)
