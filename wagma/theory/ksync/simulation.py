"""Event simulation of a parameter server's updates in virtual time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.theory.checks import Floats, Ints
from wagma.theory.distributions import Distribution, check_times
from wagma.theory.ksync.methods import check_learners, check_method

_BLOCK = 1 << 20  # times drawn at once


@dataclass(frozen=True)
class Simulation:
    """Result of a simulation.

    Attributes:
        times: times of the updates, never decreasing, from 0, float64: (updates,).
        staleness: of each gradient of an update, in order of arrival, the version of the updated
            parameters minus the version at which it was computed, int64: (updates, k).
        fresh: whether the staleness is 0, bool: (updates, k).
    """

    times: Floats
    staleness: Ints
    fresh: npt.NDArray[np.bool_]


def simulate(
    method: str,
    distribution: Distribution,
    learners: SupportsIndex,
    k: SupportsIndex,
    updates: SupportsIndex,
    rng: np.random.Generator,
) -> Simulation:
    """Simulate the updates of a method, where communication takes no time (Dutta et al., 2.3).

    All learners begin at time 0 with version 0. Update i makes version i + 1 from K gradients.
    Gradients that arrive at the same time are ordered by the indices of their learners.

    10^5 updates with 16 learners take at most a few seconds.

    Args:
        method: one of `METHODS`.
        distribution: times of mini-batches, >= 0: a frozen distribution of scipy.stats.
        learners: P, >= 1.
        k: K, 1 to P.
        updates: how many are simulated, >= 1.
        rng: draws the times; the same state gives the same result.

    Raises:
        ValueError: a value is out of its range.
        TypeError: an argument is of a wrong type.
    """
    count, least = check_learners(learners, k)
    total = check_count("updates", updates, 1)
    check_times(distribution)
    draws = Draws(distribution, rng)
    if check_method(method) == "k-async":
        times, staleness, _ = asynchronous(draws, count, least, total)
    elif method == "k-batch-async":
        times, staleness = _batch_asynchronous(draws, count, least, total)
    else:
        times = synchronous(draws, count, least, total, 1 if method == "k-sync" else least)
        staleness = np.zeros((total, least), np.int64)
    return Simulation(times, staleness, staleness == 0)


class Draws:
    """Draw compute times of mini-batches."""

    def __init__(self, distribution: Distribution, rng: np.random.Generator) -> None:
        self._distribution, self._rng = distribution, rng
        self._means: list[Floats] = []

    def __call__(self, *shape: int) -> Floats:
        """Return times of this shape."""
        drawn = self._distribution.rvs(size=shape, random_state=self._rng)
        return np.asarray(drawn, np.float64).reshape(shape)

    def of_updates(self, *shape: int) -> Floats:
        """Return times whose first axis are updates, and keep their means."""
        times = self(*shape)
        self._means.append(times.reshape(len(times), -1).mean(axis=1))
        return times

    def rows(self, length: int) -> Iterator[Floats]:
        """Yield the times of one update after the other without end, and keep their means."""
        while True:
            yield from self.of_updates(max(1, _BLOCK // (8 * length)), length)

    def means(self, updates: int) -> Floats:
        """Return the means of the times of each of the first updates, (updates,)."""
        return np.concatenate(self._means)[:updates]


def synchronous(draws: Draws, learners: int, k: int, updates: int, mini_batches: int) -> Floats:
    """Return the arrival of the K-th gradient of each update, after which all learners restart.

    Args:
        draws: makes the times.
        learners: P.
        k: K.
        updates: how many.
        mini_batches: that a learner computes for an update at most: 1, or K where one learner may
            give several gradients.
    """
    took = []
    rows = max(1, _BLOCK // (learners * mini_batches))
    for first in range(0, updates, rows):
        computing = draws.of_updates(min(rows, updates - first), learners, mini_batches)
        ends = computing.cumsum(axis=2).reshape(len(computing), -1)
        took.append(np.partition(ends, k - 1, axis=1)[:, k - 1])
    return np.concatenate(took).cumsum()


def asynchronous(draws: Draws, learners: int, k: int, updates: int) -> tuple[Floats, Ints, Floats]:
    """Return the times and the staleness of K-async, and how long each gradient waited."""
    arrived, staleness = np.empty((updates, k)), np.empty((updates, k), np.int64)
    rows = draws.rows(k)
    ends, versions = draws(learners), np.zeros(learners, np.int64)
    for version in range(updates):
        first = ends.argsort(kind="stable")[:k]
        arrived[version], staleness[version] = ends[first], version - versions[first]
        ends[first], versions[first] = arrived[version, -1] + next(rows), version + 1
    times = arrived[:, -1].copy()
    return times, staleness, times[:, np.newaxis] - arrived


def _batch_asynchronous(draws: Draws, learners: int, k: int, updates: int) -> tuple[Floats, Ints]:
    """Return the times and the staleness of K-batch-async: every learner is a renewal process."""
    pushes = updates * k
    ends = [draws(0)] * learners
    more = pushes // learners + 64
    while True:
        every = np.concatenate(ends)
        enough = len(every) >= pushes
        latest = np.partition(every, pushes - 1)[pushes - 1] if enough else np.inf
        short = [i for i, own in enumerate(ends) if not own.size or own[-1] < latest]
        if enough and not short:
            break
        # Only learners whose last push precedes the last of all pushes push more.
        for i in short:
            last = ends[i][-1:] if ends[i].size else np.zeros(1)
            ends[i] = np.concatenate([ends[i], last + draws(more).cumsum()])
        more = more // 8 + 64
    owners = np.repeat(np.arange(learners), [len(own) for own in ends])
    order = every.argsort(kind="stable")[:pushes]
    # The version after push r is (r + 1) // K; with it the learner begins its next mini-batch.
    after = (np.arange(pushes) + 1) // k
    fetched = np.zeros(pushes, np.int64)
    for learner in range(learners):
        own = np.flatnonzero(owners[order] == learner)
        fetched[own[1:]] = after[own[:-1]]
    staleness = np.arange(pushes) // k - fetched
    return every[order][k - 1 :: k], staleness.reshape(updates, k)
