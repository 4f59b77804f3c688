"""How long a training takes at least: who has to wait for whom, at no cost of communication. Pure.

Every rank computes for a given time before each of its versions, and calls. A `Rule` says when a
call returns: nothing else takes any time. So what a real run takes longer is its communication, and
what grace and the scheduler add.

The rules are those of the collectives, also where they are more patient than their names:

- a version of `majority` starts with a drawn rank that has called *this* version. One that is still
  busy with an older version gets the results which it has missed first, and computes again. Draws
  are uniform; the engine's are others.
- results of `majority` and `solo` are delivered to every rank, in order, each once: a rank that
  was left behind goes on after the newest of them, with fewer gradients than others. Eager-SGD may
  be read otherwise: each rank computes a gradient for every version (`every_gradient`).
- a rank may be `window` versions ahead of the slowest.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from wagma.collectives.topology import groups, neighbors

__all__ = ["Bound", "Rule", "bound"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rule:
    """Whom a call waits for.

    Attributes:
        wait: "none": for nobody, but for all ranks at the versions of `sync_period`. "ring",
            "exponential": for the neighbours of this version. "majority", "solo": for a drawn rank,
            for any rank.
        sync_period: versions from one synchronisation to the next; 1: everybody waits for all;
            None: never.
        window: versions that a rank may be ahead of the slowest; None: `sync_period`.
        neighbors: out-neighbours of "exponential".
        group_size: of ranks that go on with the version after the newest result of their group,
            and leave out what they have missed; None: every rank makes all versions.
        every_gradient: of "majority" and "solo": also those of versions that a rank has missed.
        seed: of the draws.
    """

    wait: Literal["none", "ring", "exponential", "majority", "solo"]
    sync_period: int | None = None
    window: int | None = None
    neighbors: int = 1
    group_size: int | None = None
    every_gradient: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Bound:
    """What comes out.

    Attributes:
        seconds: until the last rank has made its last version.
        steps: made by all ranks together: gradients.
    """

    seconds: float
    steps: int


def bound(rule: Rule, compute: Floats) -> Bound:
    """Plays a training.

    Args:
        rule: whom a call waits for.
        compute: seconds that each rank computes before its call of each version: [versions, P].

    Raises:
        ValueError: P ranks have not that many neighbours.
    """
    if rule.wait in ("majority", "solo") and not rule.every_gradient:
        return _Eager(rule, compute).play()
    if rule.group_size is not None:
        return _Forward(rule, compute).play()
    return _every_version(rule, compute)


# ---- ranks that make every version ---------------------------------------------------------------


def _every_version(rule: Rule, compute: Floats) -> Bound:
    """Version by version: when each rank calls it, and when its call returns."""
    versions, size = compute.shape
    window = rule.window or rule.sync_period
    called = np.zeros((versions, size))
    returned = np.zeros(size)
    starters = _starters(rule, versions, size)
    for version in range(versions):
        calls = returned + compute[version]
        if window is not None and version >= window:
            calls = np.maximum(calls, called[version - window].max())
        called[version] = calls
        returned = _returned(rule, version, calls, starters[version])
    return Bound(float(returned.max(initial=0.0)), versions * size)


def _starters(rule: Rule, versions: int, size: int) -> list[int]:
    """The ranks drawn for "majority"."""
    drawn: list[int] = np.random.default_rng(rule.seed).integers(size, size=versions).tolist()
    return drawn


def _returned(rule: Rule, version: int, calls: Floats, starter: int) -> Floats:
    size = len(calls)
    if _synchronises(rule, version):
        return np.full(size, calls.max())
    if rule.wait in ("none", "solo"):
        return calls
    if rule.wait == "majority":
        started: Floats = np.maximum(calls, calls[starter])
        return started
    heard = neighbors(size, rule.wait, rule.neighbors, version)
    return np.array([calls[list(senders)].max() for senders in heard])


def _synchronises(rule: Rule, version: int) -> bool:
    return rule.sync_period is not None and (version + 1) % rule.sync_period == 0


# ---- ranks that leave versions out ---------------------------------------------------------------


class _Events(ABC):
    """Ranks that call one after the other; `window` holds those back who are too far ahead."""

    def __init__(self, rule: Rule, compute: Floats) -> None:
        self.rule = rule
        self.compute = compute
        self.versions, self.size = compute.shape
        self.window = rule.window or rule.sync_period or self.versions
        self.version = [0] * self.size  # that each rank calls next
        self.called = [-1] * self.size
        self.held: list[int] = []
        self.queue: list[tuple[float, int]] = []
        self.steps = 0
        self.end = 0.0

    def play(self) -> Bound:
        """Until all ranks have made all versions."""
        for rank in range(self.size):
            self.go_on(0.0, rank, 0)
        while self.queue:
            now, rank = heapq.heappop(self.queue)
            if self._slowest(rank) < self.version[rank] - self.window:
                self.held.append(rank)
                continue
            self.called[rank] = self.version[rank]
            self.call(now, rank)
            for other in self.held:
                heapq.heappush(self.queue, (now, other))
            self.held.clear()
        return Bound(self.end, self.steps)

    def _slowest(self, rank: int) -> int:
        others = self.called[:rank] + self.called[rank + 1 :]
        return min(others, default=self.versions)

    def go_on(self, now: float, rank: int, version: int) -> None:
        """The rank's call returns: it begins to compute for `version`, unless that was all."""
        self.version[rank] = version
        if version >= self.versions:
            self.called[rank] = self.versions
            self.end = max(self.end, now)
            return
        self.steps += 1
        heapq.heappush(self.queue, (now + float(self.compute[version, rank]), rank))

    @abstractmethod
    def call(self, now: float, rank: int) -> None:
        """The rank calls its version."""


class _Eager(_Events):
    """Results of all ranks, which every rank gets in order; a call may bring several."""

    def __init__(self, rule: Rule, compute: Floats) -> None:
        super().__init__(rule, compute)
        self.starters = _starters(rule, self.versions, self.size)
        self.started = 0  # versions that have
        self.waiting: list[int] = []

    def call(self, now: float, rank: int) -> None:
        """Start its version, waits for it, or finds that it is late."""
        version = self.version[rank]
        if version < self.started:
            self.go_on(now, rank, self.started)
        elif self.rule.wait == "solo" or rank == self.starters[version]:
            self.started = version + 1
            for other in [rank, *self.waiting]:
                self.go_on(now, other, self.started)
            self.waiting.clear()
        else:
            self.waiting.append(rank)


class _Forward(_Events):
    """Averages of groups; who is late goes on after the newest one of its groups."""

    def __init__(self, rule: Rule, compute: Floats) -> None:
        super().__init__(rule, compute)
        self.group_of: list[list[int]] = []  # number of a rank's group, by version
        self.started: list[set[int]] = []  # these of each version
        for version in range(self.versions):
            of_rank = [0] * self.size
            for number, members in enumerate(groups(self.size, rule.group_size or 1, version)):
                for rank in members:
                    of_rank[rank] = number
            self.group_of.append(of_rank)
            self.started.append(set())
        self.waiting: list[int] = []  # at a synchronisation

    def call(self, now: float, rank: int) -> None:
        """Take the newest result of its groups, the version's own at least."""
        version = self.version[rank]
        if _synchronises(self.rule, version):
            self.waiting.append(rank)
            if len(self.waiting) == self.size:
                for other in self.waiting:
                    self.go_on(now, other, version + 1)
                self.waiting.clear()
            return
        newest = version
        if self.group_of[version][rank] in self.started[version]:
            for later in range(version, self.versions):
                if self.group_of[later][rank] in self.started[later]:
                    newest = later
        self.started[version].add(self.group_of[version][rank])
        self.go_on(now, rank, newest + 1)
