"""Contributions that say which version of whom they are, and the invariants of their sums.

The array of P ranks has P slots of SLOT elements, of which rank r fills only its own, with the
number of its version (+2, so that the first contribution, -1, counts 1). A sum of them shows in
slot r which version of rank r it holds, exactly, and whether parts of two versions were mixed.
Behind the slots follow random numbers whose sums depend on the order of the additions: two ranks
that agree on them to the bit had the same inputs and added them in the same order.

Every rank keeps a log of its calls; `check` takes the logs of all ranks (empty: it was killed). I1,
I2, I4, I5, I8 and I9 are those of the specification.
"""

import random
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wagma.collectives import topology

SLOT = 5
NOISE = 37
Vector = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Plan:
    """A run: the options that the invariants depend on, and the weights."""

    size: int
    group_size: int
    quorum: int
    sync_period: int | None = None
    window: int = 64
    average: bool = False
    weights: bool = False  # of 1, 2 and 3, by rank and version
    grouping: str = "dynamic"
    seed: int = 0  # of grouping="pairs"
    activation: str = "group"
    fast_forward: bool = False
    slot: int = SLOT
    noise: int = NOISE

    @property
    def count(self) -> int:
        return self.size * self.slot + self.noise

    def weight(self, rank: int, version: int) -> float:
        return 1.0 + (rank + version) % 3 if self.weights and version >= 0 else 1.0

    def is_sync(self, version: int) -> bool:
        return self.sync_period is not None and (version + 1) % self.sync_period == 0

    def group(self, rank: int, version: int, sync: bool) -> tuple[int, ...]:
        if sync:
            return tuple(range(self.size))
        return topology.group_of(
            rank, self.size, self.group_size, version, grouping=self.grouping, seed=self.seed
        )

    def contribution(self, rank: int, version: int) -> Vector:
        x = np.zeros(self.count, np.float32)
        x[rank * self.slot : (rank + 1) * self.slot] = version + 2
        x[self.size * self.slot :] = np.random.default_rng((rank, version + 1)).standard_normal(
            self.noise, np.float32
        )
        return x


@dataclass
class Call:
    """One call of one rank; picklable."""

    rank: int
    sync: bool
    began: float
    ended: float
    version: int
    late: bool
    merged: bool
    skipped: int
    weight: float
    contributors: tuple[int, ...]
    versions: tuple[int, ...]
    result: Vector


def run(
    plan: Plan,
    rank: int,
    coll: Any,
    x: Vector,
    steps: int,
    *,
    delay: Callable[[random.Random], float] | None = None,
    final_sync: bool = True,
) -> list[Call]:
    """Calls `steps` versions and a sync in `x`, which holds the first contribution."""
    rng = random.Random(rank)
    log = []
    while coll.version < steps or (final_sync and coll.version == steps):
        version = coll.version
        sync = version == steps
        if delay is not None and (pause := delay(rng)):
            time.sleep(pause)
        x[:] = plan.contribution(rank, version)
        weight = plan.weight(rank, version)
        began = time.time()  # compared with that of ranks on other hosts
        outcome = (coll.sync if sync else coll.allreduce)(x, weight)
        ended = time.time()
        assert outcome.version == version
        assert coll.version == version + 1 + outcome.skipped
        log.append(
            Call(
                rank=rank,
                sync=sync or plan.is_sync(version),
                began=began,
                ended=ended,
                version=version,
                late=outcome.late,
                merged=outcome.merged,
                skipped=outcome.skipped,
                weight=outcome.weight,
                contributors=outcome.contributors,
                versions=outcome.versions,
                result=x.copy(),
            )
        )
        if delay is not None and (pause := delay(rng)):
            time.sleep(pause)
        assert np.array_equal(x, log[-1].result), "I9: the array changed after the call"
    return log


def check(plan: Plan, logs: Sequence[Sequence[Call]]) -> dict[str, int]:
    """Asserts the invariants; returns how often what happened, so that tests see what they saw."""
    seen: dict[str, int] = defaultdict(int)
    rounds: dict[tuple[int, int], list[Call]] = defaultdict(list)
    jumped = {  # rank and version that it did not call
        (call.rank, call.version + 1 + k)
        for log in logs
        for call in log
        for k in range(call.skipped)
    }
    for log in logs:
        newest = -1  # version that this rank took part in or merged
        for call in log:
            seen["calls"] += 1
            seen["late"] += call.late
            if not call.merged:
                seen["unmerged"] += 1
                _check_unchanged(plan, call)
                continue
            taken = _taken(plan, call)
            _check_call(plan, call, taken, jumped)
            if taken is None or _is_alone(call):
                continue
            assert not call.late or taken > newest, f"{call}: merged, but {newest} was newer"
            newest = max(newest, taken)
            seen["skipped versions"] += taken - call.version
            leader = plan.group(call.rank, taken, call.sync)[0]
            rounds[(taken, leader)].append(call)
    fresh = {(c.rank, c.version) for log in logs for c in log if not c.late}
    published = _Published(logs)
    for (version, _), calls in rounds.items():
        _check_agreement(plan, calls)
        if all(logs):  # a rank without a log may have begun the version before all others
            _check_newest(version, calls, published)
            _check_fresh(plan, version, calls[0], fresh)
        seen["agreements"] += len(calls) > 1
    return seen


def _own_weight(plan: Plan, call: Call) -> float:
    return plan.weight(call.rank, call.version)


def _is_alone(call: Call) -> bool:
    """Late in a version that all ranks started and in which its group is it alone: x stays."""
    return call.late and (call.contributors, call.versions) == ((call.rank,), (call.version,))


def _check_unchanged(plan: Plan, call: Call) -> None:
    assert np.array_equal(call.result, plan.contribution(call.rank, call.version))
    assert call.late


def _taken(plan: Plan, call: Call) -> int | None:
    """The version whose result a call got; None where nothing says it."""
    if not call.late:
        return call.version
    if plan.fast_forward:
        return call.version + call.skipped
    if plan.activation == "group":
        return max(call.versions)  # a version is pinned by a member that has called it
    return None


def _check_call(plan: Plan, call: Call, taken: int | None, jumped: set[tuple[int, int]]) -> None:
    """What a result holds, which is of version `taken`."""
    holds = dict(zip(call.contributors, call.versions, strict=True))
    assert list(holds) == sorted(holds)
    assert call.skipped == 0 or (call.late and plan.fast_forward)
    if _is_alone(call):
        _check_unchanged(plan, call)
        assert call.weight == _own_weight(plan, call)
        assert taken is None or plan.group(call.rank, taken, call.sync) == (call.rank,)
        return
    if taken is not None:
        _check_versions(plan, call, taken, holds, jumped)
    _check_sum(plan, call, holds)


def _check_versions(
    plan: Plan, call: Call, taken: int, holds: dict[int, int], jumped: set[tuple[int, int]]
) -> None:
    assert taken == call.version or (call.late and taken > call.version)
    assert not any(plan.is_sync(v) for v in range(call.version, taken)), "I4: past a sync version"
    group = plan.group(call.rank, taken, call.sync)
    assert set(holds) <= set(group), f"{call} holds a rank that is not in group {group}"
    for version in holds.values():
        assert version <= taken, "I2: a contribution from a later version"
        # Who has jumped is as far as its counter says, with a contribution from before the jump.
        oldest = taken - (2 * plan.window if plan.fast_forward else plan.window) - 1
        assert version >= oldest, "a contribution older than the window allows"
    assert not (call.sync and call.late), "I4: late in a sync version"
    if call.sync:
        assert all(version == taken for version in holds.values()), "I4: a stale one in a sync"
    if not call.late:
        assert holds.get(call.rank) == call.version, "fresh, but the own contribution is missing"
    if call.late:
        newest = call.version - (taken == call.version)  # a newer round may hold the own one
        assert holds[call.rank] <= newest, "late, but the own contribution is in the result"
    present = sum(version == taken for version in holds.values())
    if call.sync or plan.activation == "group":
        quorum = len(group) if call.sync else min(plan.quorum, len(group))
        assert present >= quorum, f"{present} members were present, the quorum is {quorum}"
    # Who jumped over the version may have nothing left that is not newer.
    assert all(rank in holds or (rank, taken) in jumped for rank in group)


def _check_sum(plan: Plan, call: Call, holds: dict[int, int]) -> None:
    own = _own_weight(plan, call) if call.late else 0.0
    divisor = sum(plan.weight(rank, version) for rank, version in holds.items()) + own
    assert call.weight == divisor
    expected = [plan.weight(r, holds[r]) * (holds[r] + 2) if r in holds else 0.0
                for r in range(plan.size)]  # fmt: skip
    expected[call.rank] += own * (call.version + 2)
    slots = call.result[: plan.size * plan.slot].reshape(plan.size, plan.slot)
    if plan.average:
        slots = slots * np.float32(divisor)
    desired = np.array(expected)
    extremes = np.array([slots.min(axis=1), slots.max(axis=1)])  # of what is between, too
    if not (np.abs(extremes - desired) <= 1e-6 * np.abs(desired)).all():
        # It says what differs, and takes ten times as long to find that nothing does.
        desired = np.repeat([desired], plan.slot, 0).T
        np.testing.assert_allclose(slots, desired, rtol=1e-6, err_msg="I5")
        raise AssertionError(f"I5: {slots} instead of {expected}")


def _check_agreement(plan: Plan, calls: list[Call]) -> None:
    """I1: the members that take a version get the same, to the bit."""
    assert len({(call.contributors, call.versions) for call in calls}) == 1
    fresh = [call for call in calls if not call.late]
    assert len({(call.weight, call.result.tobytes()) for call in fresh}) <= 1
    if plan.average or not fresh:
        return
    for call in calls:
        if call.late:  # R is what the fresh ones got, to which a late one adds its own
            own = plan.contribution(call.rank, call.version)
            expected = fresh[0].result + np.float32(_own_weight(plan, call)) * own
            assert expected.tobytes() == call.result.tobytes()


def _check_fresh(plan: Plan, version: int, call: Call, fresh: set[tuple[int, int]]) -> None:
    """I2: a contribution of the version itself is in it exactly if its rank was not late."""
    for rank, contributed in zip(call.contributors, call.versions, strict=True):
        assert (contributed == version) == ((rank, version) in fresh), f"I2: rank {rank}: {call}"
    if plan.activation == "world":  # any ranks start a version, not only those of this group
        present = sum((rank, version) in fresh for rank in range(plan.size))
        assert present >= plan.quorum, f"{present} ranks were present, not {plan.quorum}"


class _Published:
    """What the ranks had published at which time; their logs are in the order of their calls."""

    def __init__(self, logs: Sequence[Sequence[Call]]) -> None:
        self.ended = [[call.ended for call in log] for log in logs]
        self.versions = [[call.version for call in log] for log in logs]
        self.began: dict[int, float] = {}  # when the first rank called a version
        for log in logs:
            for call in log:
                first = self.began.get(call.version, call.began)
                self.began[call.version] = min(first, call.began)

    def newest(self, rank: int, version: int) -> int:
        """Not above a version, of those that had ended before anyone began that; -1: none."""
        ended = bisect_left(self.ended[rank], self.began.get(version, 0.0))
        known = min(ended, bisect_right(self.versions[rank], version))
        return self.versions[rank][known - 1] if known else -1


def _check_newest(version: int, calls: list[Call], published: _Published) -> None:
    """I2: what a member had published before anyone began the version is not older."""
    for rank, contributed in zip(calls[0].contributors, calls[0].versions, strict=True):
        newest = published.newest(rank, version)
        assert contributed >= newest, f"I2: rank {rank} had published {newest}"
