"""Models that descend a quadratic objective with noise: how far apart a method lets them get. Pure.

Each rank has a model x of a few coordinates, and its update is -eta (x + noise) with standard
normal noise: F(x) = |x|^2 / 2. What is measured is the distance of the models from their mean.
"""

import numpy as np

from wagma.theory.checks import Ints

_ETA = 0.02  # learning rate
_COORDINATES = 8


class Models:
    """The models of all ranks, and what they published in recent versions.

    Args:
        ranks: P.
        depth: versions of which contributions are kept.
        rng: draws the noise.
    """

    def __init__(self, ranks: int, depth: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._models = np.zeros((ranks, _COORDINATES))
        self._published = np.zeros((depth, ranks, _COORDINATES))
        self._squares: list[float] = []

    def step(self, version: int) -> None:
        """Make each rank's update, and publish it."""
        noise = self._rng.standard_normal(self._models.shape)
        self._models -= _ETA * (self._models + noise)
        self._published[version % len(self._published)] = self._models

    def average(self, version: int, members: Ints, ages: Ints) -> None:
        """Average in groups; a late rank merges its own model (Algorithm 2, line 13).

        Args:
            version: now.
            members: of each group, -1: none: (groups, S).
            ages: of each rank's contribution, 0: fresh: (P,).
        """
        ranks = np.arange(len(ages))
        rows = (version - ages) % len(self._published)
        given = np.vstack([self._published[rows, ranks], np.zeros(_COORDINATES)])
        sums, counts = given[members].sum(axis=1), (members >= 0).sum(axis=1)
        group = np.empty(len(ages) + 1, np.intp)
        group[members] = np.arange(len(members))[:, np.newaxis]
        own, late = group[:-1], (ages > 0)[:, np.newaxis]
        weights = counts[own][:, np.newaxis] + late
        self._models = (sums[own] + late * self._models) / weights

    def mix(self, senders: Ints) -> None:
        """Average each rank's model with those of its senders: (P, n)."""
        received = self._models[senders].sum(axis=1)
        self._models = (self._models + received) / (senders.shape[1] + 1)

    def synchronise(self) -> None:
        """Average all models."""
        self._models[:] = self._models.mean(axis=0)

    def measure(self) -> None:
        """Note the distance of the models from their mean."""
        apart = self._models - self._models.mean(axis=0)
        self._squares.append(float(np.mean(apart**2)))

    @property
    def distance(self) -> float:
        """Root mean square distance, in steps of one update's noise."""
        return float(np.sqrt(np.mean(self._squares))) / _ETA
