"""late="skip" and "carry": contributions that say which they are, and what becomes of them.

The array of P ranks and T versions has an element for each contribution, which rank r sets in its
contribution of version t alone, to 1. A sum of them lists what it holds, however many contributions
a rank has carried into it. Behind them follow random numbers, whose sums depend on the order of the
additions.

Every rank keeps a log of its calls; `check` takes the logs of all ranks.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wagma.collectives import topology

NOISE = 37
Vector = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Plan:
    """A run of `steps` versions and a sync: the options that the checks depend on."""

    size: int
    late: str  # "skip" or "carry"
    quorum: int | str
    steps: int
    group_size: int | None = None
    sync_period: int | None = None
    window: int = 8
    average: bool = False
    weights: bool = False  # of 1, 2 and 3, by rank and version

    @property
    def marks(self) -> int:
        return self.size * (self.steps + 1)

    @property
    def count(self) -> int:
        return self.marks + NOISE

    def weight(self, rank: int, version: int) -> float:
        return 1.0 + (rank + version) % 3 if self.weights else 1.0

    def is_sync(self, version: int) -> bool:
        period = self.sync_period
        return version == self.steps or (period is not None and (version + 1) % period == 0)

    def group(self, rank: int, version: int) -> tuple[int, ...]:
        if self.is_sync(version) or self.group_size is None:
            return tuple(range(self.size))
        return topology.group_of(rank, self.size, self.group_size, version)

    def contribution(self, rank: int, version: int) -> Vector:
        x = np.zeros(self.count, np.float32)
        x[rank * (self.steps + 1) + version] = 1
        x[self.marks :] = np.random.default_rng((rank, version)).standard_normal(NOISE, np.float32)
        return x


@dataclass
class Call:
    """One call of one rank; picklable. The last result is also what the array became."""

    rank: int
    version: int
    late: bool
    weight: float
    contributors: tuple[int, ...]
    versions: tuple[int, ...]
    results: list[Vector]


def run(
    plan: Plan, rank: int, coll: Any, *, delay: Callable[[random.Random], float] | None = None
) -> list[Call]:
    """Makes all calls of a rank; no contribution that it has made is lost to the checks."""
    rng = random.Random(rank)
    log: list[Call] = []
    while (version := coll.version) <= plan.steps:
        if delay is not None and (pause := delay(rng)):
            time.sleep(pause)
        x = plan.contribution(rank, version)
        call = coll.sync if version == plan.steps else coll.allreduce
        outcome = call(x, plan.weight(rank, version))
        assert outcome.version == version
        assert outcome.merged
        assert outcome.skipped == 0
        assert coll.version == version + len(outcome.results)
        for result in outcome.results:
            assert not result.flags.writeable
        assert np.array_equal(outcome.results[-1], x)
        log.append(
            Call(
                rank=rank,
                version=version,
                late=outcome.late,
                weight=outcome.weight,
                contributors=outcome.contributors,
                versions=outcome.versions,
                results=[result.copy() for result in outcome.results],
            )
        )
        if delay is not None and (pause := delay(rng)):
            time.sleep(pause)
        assert np.array_equal(outcome.results[-1], x), "I9: a result changed after the call"
    stats = coll.stats()
    assert (stats.calls, stats.late) == (len(log), sum(call.late for call in log))
    return log


def check(plan: Plan, logs: Sequence[Sequence[Call]]) -> dict[str, int]:
    """Asserts the invariants; returns how often what happened."""
    seen: dict[str, int] = defaultdict(int)
    results: dict[tuple[int, int], Vector] = {}  # by version and lowest rank of the group
    fresh: set[tuple[int, int]] = set()  # rank and version
    for log in logs:
        next_version = 0
        for call in log:
            seen["calls"] += 1
            seen["late"] += call.late
            seen["most results"] = max(seen["most results"], len(call.results))
            assert call.version == next_version, "a version was left out, or delivered twice"
            next_version += len(call.results)
            if not call.late:
                fresh.add((call.rank, call.version))
            assert not (call.late and plan.is_sync(call.version)), "I4: late in a sync version"
            for version, result in enumerate(call.results, call.version):
                assert version == call.version or not plan.is_sync(version), "I4"
                leader = plan.group(call.rank, version)[0]
                same = results.setdefault((version, leader), result)
                assert same.tobytes() == result.tobytes(), f"I1: version {version}, {call}"
        assert next_version == plan.steps + 1
    for (version, leader), result in results.items():
        _check_content(plan, version, plan.group(leader, version), result, logs, fresh)
    for log in logs:
        for call in log:
            _check_outcome(plan, call, fresh)
    if plan.late == "carry":
        _check_nothing_lost(plan, logs, results)
    return seen


def _check_content(
    plan: Plan,
    version: int,
    group: tuple[int, ...],
    result: Vector,
    logs: Sequence[Sequence[Call]],
    fresh: set[tuple[int, int]],
) -> None:
    """I2: of each fresh member its contribution and what it carried, of the others nothing."""
    present = [rank for rank in group if (rank, version) in fresh]
    quorum = plan.quorum if isinstance(plan.quorum, int) else 1
    needed = len(group) if plan.is_sync(version) else min(quorum, len(group))
    assert len(present) >= needed, f"version {version} with {present}, the quorum is {needed}"
    expected = np.zeros(plan.marks)
    for rank in present:
        for call in reversed([call for call in logs[rank] if call.version <= version]):
            if call.version < version and (plan.late == "skip" or not call.late):
                break  # skip: no more than this one; carry: what it had before has been delivered
            mark = rank * (plan.steps + 1) + call.version
            expected[mark] = plan.weight(rank, call.version)
    if plan.average:
        expected /= _divisor(plan, version, group, present)
    np.testing.assert_allclose(result[: plan.marks], expected, rtol=1e-6)


def _divisor(plan: Plan, version: int, group: tuple[int, ...], present: list[int]) -> float:
    """Under "carry" absent members count; their weight is known where all weights are 1."""
    if plan.late == "carry":
        assert not plan.weights
        return len(group)
    return sum(plan.weight(rank, version) for rank in present)


def _check_outcome(plan: Plan, call: Call, fresh: set[tuple[int, int]]) -> None:
    """What a call says about the newest of its results."""
    newest = call.version + len(call.results) - 1
    group = plan.group(call.rank, newest)
    present = [rank for rank in group if (rank, newest) in fresh]
    assert call.contributors == tuple(present), call
    assert call.versions == (newest,) * len(present), call
    if plan.late == "skip" or not plan.weights:
        assert call.weight == _divisor(plan, newest, group, present), call


def _check_nothing_lost(
    plan: Plan, logs: Sequence[Sequence[Call]], results: dict[tuple[int, int], Vector]
) -> None:
    """After the last version, a sync, nobody carries anything: every contribution is in a result.

    Once each, because no mark is larger than its weight.
    """
    if plan.average:
        return
    total = sum(result[: plan.marks].astype(np.float64) for result in results.values())
    made = np.zeros(plan.marks)
    for log in logs:
        for call in log:
            mark = call.rank * (plan.steps + 1) + call.version
            made[mark] = plan.weight(call.rank, call.version)
    np.testing.assert_allclose(total, made, rtol=1e-6)  # weights are divided and multiplied
