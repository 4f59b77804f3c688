"""Lower bound on the time of a training, from computing and waiting alone. Pure.

Every rank computes for a given time before each of its versions, then calls the collective. A
`Rule` decides when the call returns; nothing else takes time. A real run takes longer by its
communication, and by what grace and the scheduler add.

The rules are those of the collectives, which may wait longer than their names suggest:

- a version of `majority` starts when a drawn rank has called *this* version. A drawn rank that is
  still busy with an older version first gets the results that it missed, and computes again. Draws
  are the engine's.
- `majority` and `solo` deliver every result to every rank, in order: a rank that fell behind goes
  on after the newest result, with fewer gradients than others. Another reading of Eager-SGD has
  each rank compute a gradient for every version (`every_gradient`).
- a rank may be `window` versions ahead of the slowest.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wagma.collectives.topology import groups, neighbors, starter_of
from wagma.theory.checks import Floats


@dataclass(frozen=True, slots=True)
class Rule:
    """The ranks for which a call waits.

    Attributes:
        wait: "none": no rank, except all ranks at the versions of `sync_period`. "ring",
            "exponential": the neighbours of this version. "majority": a drawn rank. "solo": any
            rank.
        sync_period: versions from one synchronisation to the next; 1: all ranks always wait for
            all; None: never.
        window: versions that a rank may be ahead of the slowest; None: `sync_period`.
        neighbors: number of out-neighbours of "exponential".
        group_size: size of groups whose ranks skip to the version after the newest result of their
            group; None: every rank makes all versions.
        every_gradient: with "majority" and "solo" a rank also computes the gradients of versions
            that it missed.
        seed: seed of the draws.
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
    """Result of `bound`.

    Attributes:
        seconds: time until the last rank has made its last version.
        steps: number of gradients that all ranks computed together.
    """

    seconds: float
    steps: int


def bound(rule: Rule, compute: Floats) -> Bound:
    """Return the bound of a training.

    Args:
        rule: the ranks for which a call waits.
        compute: seconds that each rank computes before its call of each version: [versions, P].

    Raises:
        ValueError: P ranks do not have that many neighbours.
    """
    if rule.wait in ("majority", "solo") and not rule.every_gradient:
        return _Eager(rule, compute).play()
    if rule.group_size is not None:
        return _Forward(rule, compute).play()
    return _every_version(rule, compute)


# ---- ranks that make every version ---------------------------------------------------------------


def _every_version(rule: Rule, compute: Floats) -> Bound:
    """Compute, version by version, when each rank calls it and when the call returns."""
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
    """Return the ranks drawn for "majority", by version."""
    return [starter_of(range(size), version, seed=rule.seed) for version in range(versions)]


def _returned(rule: Rule, version: int, calls: Floats, starter: int) -> Floats:
    size = len(calls)
    if _synchronises(rule, version):
        return np.full(size, calls.max())
    if rule.wait in ("none", "solo"):
        return calls
    if rule.wait == "majority":
        started: Floats = np.maximum(calls, calls[starter])
        return started
    in_neighbors = neighbors(size, rule.wait, rule.neighbors, version)
    return np.array([calls[list(senders)].max() for senders in in_neighbors])


def _synchronises(rule: Rule, version: int) -> bool:
    return rule.sync_period is not None and (version + 1) % rule.sync_period == 0


# ---- ranks that skip versions --------------------------------------------------------------------


class _Events(ABC):
    """Simulate calls in order of time; `window` holds back ranks that are too far ahead."""

    def __init__(self, rule: Rule, compute: Floats) -> None:
        self.rule = rule
        self.compute = compute
        self.versions, self.size = compute.shape
        self.window = rule.window or rule.sync_period or self.versions
        self.version = [0] * self.size  # next version of each rank
        self.called = [-1] * self.size
        self.held: list[int] = []
        self.queue: list[tuple[float, int]] = []
        self.steps = 0
        self.end = 0.0

    def play(self) -> Bound:
        """Simulate until all ranks have made all versions."""
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
        """Return from a rank's call: it computes for `version`, or ends after the last one."""
        self.version[rank] = version
        if version >= self.versions:
            self.called[rank] = self.versions
            self.end = max(self.end, now)
            return
        self.steps += 1
        heapq.heappush(self.queue, (now + float(self.compute[version, rank]), rank))

    @abstractmethod
    def call(self, now: float, rank: int) -> None:
        """Handle the call of a rank for its version."""


class _Eager(_Events):
    """Deliver results of all ranks to every rank in order; a call may return several."""

    def __init__(self, rule: Rule, compute: Floats) -> None:
        super().__init__(rule, compute)
        self.starters = _starters(rule, self.versions, self.size)
        self.started = 0  # number of started versions
        self.waiting: list[int] = []

    def call(self, now: float, rank: int) -> None:
        """Start the version, wait for it, or find that the rank is late."""
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
    """Average in groups; a late rank goes on after the newest average of its groups."""

    def __init__(self, rule: Rule, compute: Floats) -> None:
        super().__init__(rule, compute)
        self.group_of: list[list[int]] = []  # group of each rank, by version
        self.started: list[set[int]] = []  # started groups, by version
        for version in range(self.versions):
            group = [0] * self.size
            for number, members in enumerate(groups(self.size, rule.group_size or 1, version)):
                for rank in members:
                    group[rank] = number
            self.group_of.append(group)
            self.started.append(set())
        self.waiting: list[int] = []  # at a synchronisation

    def call(self, now: float, rank: int) -> None:
        """Take the newest result of the rank's groups, at least that of its version."""
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
