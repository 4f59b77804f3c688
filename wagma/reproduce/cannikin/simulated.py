"""A cluster's clock: what nodes would measure, and how long steps would take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wagma.theory.cannikin import ClusterModel, Measured, Plan, Planner, batch_time
from wagma.theory.checks import Floats


@dataclass(frozen=True)
class Errors:
    """Standard deviations, relative to what they are errors of; all are chosen."""

    step: float = 0.02  # of each node's times in a step, independent
    epoch: float = 0.01  # of each node's times in an epoch, as other load comes and goes
    # of gamma as the best and the worst node measure it in an epoch; the others are between these
    gamma: tuple[float, float] = (0.02, 0.2)
    # by how much communication takes longer for a node, on average, in an epoch
    communication: float = 0.05


EXACT = Errors(0.0, 0.0, (0.0, 0.0), 0.0)


class Epoch(NamedTuple):
    """What a plan came to."""

    seconds: Floats  # of each step, (steps,)
    measured: Measured  # by the nodes, typical values as a training measures them


class Clock:
    """Draws the times of a cluster's steps: those of the cluster, with errors."""

    def __init__(
        self, cluster: ClusterModel, rng: np.random.Generator, errors: Errors = Errors()
    ) -> None:
        self.cluster, self._rng, self._errors = cluster, rng, errors
        # Which node measures gamma how well.
        self._gamma = rng.permutation(np.linspace(*errors.gamma, len(cluster.nodes)))

    def epoch(self, batches: Sequence[int], steps: int) -> Epoch:
        """Return an epoch of so many steps.

        A step takes (7) of the times of its nodes; what nodes report are medians.
        """
        cluster, errors, count = self.cluster, self._errors, len(batches)
        b = np.array(batches, np.float64)
        q, s, k, m = np.array([(node.q, node.s, node.k, node.m) for node in cluster.nodes]).T
        for_epoch = 1 + errors.epoch * self._normal(count)
        a = (q * b + s) * for_epoch * (1 + errors.step * self._normal(steps, count))
        P = (k * b + m) * for_epoch * (1 + errors.step * self._normal(steps, count))
        overlap, last = cluster.overlap_time, cluster.last_bucket_time
        ends = np.maximum(a + P, a + cluster.gamma * P + overlap)
        gammas = cluster.gamma * (1 + self._gamma * self._normal(count))
        slower = 1 + errors.communication * self._rng.exponential(size=(2, count))
        seconds: Floats = ends.max(axis=1) + last
        measured = Measured(
            list(batches),
            np.median(a, axis=0).tolist(),
            np.median(P, axis=0).tolist(),
            gammas.clip(0, 1).tolist(),
            (overlap * slower[0]).tolist(),
            (last * slower[1]).tolist(),
            float(np.median(seconds)),
        )
        return Epoch(seconds, measured)

    def _normal(self, *shape: int) -> Floats:
        """Draw normal values that make no time negative."""
        return self._rng.standard_normal(shape).clip(-3, 3)


class Followed(NamedTuple):
    """What a planner made of a cluster, epoch by epoch."""

    plans: list[Plan]  # of the epochs
    times: list[float]  # of a step with each plan, without errors, in seconds
    measured: list[float]  # mean seconds of a step


def follow(planner: Planner, clock: Clock, epochs: int, steps: int) -> Followed:
    """Let a planner plan so many epochs of so many steps, from its first plan on."""
    found = Followed([], [], [])
    plan = planner.first()
    for _ in range(epochs):
        epoch = clock.epoch(plan.batches, steps)
        found.plans.append(plan)
        found.times.append(batch_time(clock.cluster, plan.batches))
        found.measured.append(float(epoch.seconds.mean()))
        plan = planner.next(epoch.measured)
    return found
