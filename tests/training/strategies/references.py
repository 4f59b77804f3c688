"""The algorithms in numpy: the model of each rank after each step, in a given order of arrivals.

Written from the papers and the stated semantics of the collectives, and from nothing in wagma.
Wait-avoiding model averaging has its model in algorithm2.py.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

COMMON, RARE = 7, 3  # elements of two parameters; the second one has a gradient now and then only


def gradient(rank: int, version: int, model: Vector) -> Vector:
    """Return the gradient of a rank's loss at `model`; behind it 1 if the second parameter has one.

    It pulls each rank to a point of its own, with noise: no two models are alike.
    """
    noise = np.random.default_rng((rank, version)).normal(size=model.shape)
    has_rare = (rank + version) % 4 == 1
    new = model - rank + noise
    new[COMMON:] *= has_rare
    return np.append(new, float(has_rare))


class Inner(Protocol):
    """An optimizer of one rank."""

    def __call__(self, model: Vector, gradient: Vector) -> Vector:
        """The model after a step; a parameter without gradient stays."""
        ...


def _parts(gradient: Vector) -> list[slice]:
    """Return the slices of the parameters that have a gradient."""
    parts = [slice(0, COMMON), slice(COMMON, COMMON + RARE)]
    return parts if gradient[-1] > 0 else parts[:1]


class SGD:
    """x - rate v, v = momentum v + g."""

    def __init__(self, rate: float = 0.25, momentum: float = 0.0) -> None:
        self._rate = rate
        self._momentum = momentum
        self._velocity = np.zeros(COMMON + RARE)

    def __call__(self, model: Vector, gradient: Vector) -> Vector:
        new = model.copy()
        for part in _parts(gradient):
            self._velocity[part] = self._momentum * self._velocity[part] + gradient[part]
            new[part] -= self._rate * self._velocity[part]
        return new


class Adam:
    """Kingma and Ba 2015, Algorithm 1, with the usual constants."""

    def __init__(self, rate: float = 0.05) -> None:
        self._rate = rate
        self._first, self._second = np.zeros((2, COMMON + RARE))
        self._steps = np.zeros(COMMON + RARE)

    def __call__(self, model: Vector, gradient: Vector) -> Vector:
        new = model.copy()
        for part in _parts(gradient):
            g = gradient[part]
            self._steps[part] += 1
            self._first[part] = 0.9 * self._first[part] + 0.1 * g
            self._second[part] = 0.999 * self._second[part] + 0.001 * g**2
            first = self._first[part] / (1 - 0.9 ** self._steps[part])
            second = self._second[part] / (1 - 0.999 ** self._steps[part])
            new[part] -= self._rate * first / (np.sqrt(second) + 1e-8)
        return new


INNER: dict[str, Callable[[], Inner]] = {
    "SGD": SGD,
    "momentum": lambda: SGD(momentum=0.5),
    "Adam": Adam,
}


def total(vectors: list[Vector]) -> Vector:
    """In the order of the ranks: floating-point sums depend on it."""
    summed = vectors[0].copy()
    for vector in vectors[1:]:
        summed += vector
    return summed


class Lockstep:
    """Ranks that are at one version and wait for each other: each algorithm has its `mix`."""

    def __init__(self, size: int, inner: Callable[[], Inner]) -> None:
        self.size = size
        self.version = 0
        self.models = [np.zeros(COMMON + RARE) for _ in range(size)]
        self._inner = [inner() for _ in range(size)]

    def step(self) -> list[Vector]:
        """The models after one more step of all."""
        self.models = self.mix(
            [
                self._inner[r](model, gradient(r, self.version, model))
                for r, model in enumerate(self.models)
            ]
        )
        self.version += 1
        return self.models

    def mix(self, models: list[Vector]) -> list[Vector]:
        """What the ranks have of their new `models` at this version."""
        raise NotImplementedError

    def average(self, models: list[Vector]) -> list[Vector]:
        """The mean of all, for all."""
        return [total(models) / self.size] * self.size


class Allreduce(Lockstep):
    """Each rank applies the mean of all gradients."""

    def step(self) -> list[Vector]:
        gradients = [gradient(r, self.version, model) for r, model in enumerate(self.models)]
        mean = total(gradients) / self.size
        self.models = [
            inner(model, mean) for inner, model in zip(self._inner, self.models, strict=True)
        ]
        self.version += 1
        return self.models


class Local(Lockstep):
    """Stich 2019: local steps, every `period` of them a mean of all models."""

    def __init__(self, size: int, inner: Callable[[], Inner], period: int) -> None:
        super().__init__(size, inner)
        self._period = period

    def mix(self, models: list[Vector]) -> list[Vector]:
        return models if (self.version + 1) % self._period else self.average(models)


class Ring(Lockstep):
    """Lian et al. 2017 with the mixing after the step: W is 1/3 for a rank and its neighbours."""

    def mix(self, models: list[Vector]) -> list[Vector]:
        mixed = []
        for rank in range(self.size):
            around = sorted({(rank + d) % self.size for d in (-1, 0, 1)})
            mixed.append(total([models[r] for r in around]) / len(around))
        return mixed


class Push(Lockstep):
    """Assran et al. 2019, Algorithm 1: x and w are pushed, gradients are those at z = x / w."""

    def __init__(
        self,
        size: int,
        inner: Callable[[], Inner],
        neighbors: int,
        weights: list[float] | None = None,
    ) -> None:
        super().__init__(size, inner)
        self._neighbors = neighbors
        self.weights = weights or [1.0] * size

    def step(self) -> list[Vector]:
        x = []
        for rank, z in enumerate(self.models):  # the update, made at z, is that of x
            update = self._inner[rank](z, gradient(rank, self.version, z)) - z
            x.append(z * self.weights[rank] + update)
        powers = [2**i for i in range(max(1, (self.size - 1).bit_length()))]
        first = self.version * self._neighbors
        distances = [powers[(first + i) % len(powers)] for i in range(self._neighbors)]
        if self._neighbors > len(powers):
            others = [d for d in range(1, self.size) if d not in powers]
            distances = (powers + others)[: self._neighbors]
        share = 1 / (1 + self._neighbors) if self.size > 1 else 1.0
        pushed = [np.zeros_like(x[0]) for _ in x]
        weights = [0.0] * self.size
        for rank in range(self.size):
            for receiver in {rank, *((rank + distance) % self.size for distance in distances)}:
                pushed[receiver] += share * x[rank]
                weights[receiver] += share * self.weights[rank]
        self.weights = weights
        self.models = [x / w for x, w in zip(pushed, weights, strict=True)]
        self.version += 1
        return self.models


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def drawn(size: int, version: int, seed: int = 0) -> int:
    """The rank that starts a version of all, "majority"."""
    return min(range(size), key=lambda rank: _mix(seed ^ _mix(version + 1 ^ _mix(rank))))


class Eager:
    """Li et al. 2020, with every result delivered: ranks come one by one.

    Attributes:
        models: of the ranks; at equal versions they are equal.
        version: of the ranks.
        present: who waits for the next version to start.
        carried: what is in no result yet, None where nothing is.
    """

    def __init__(self, size: int, inner: Callable[[], Inner]) -> None:
        self.size = size
        self.models = [np.zeros(COMMON + RARE) for _ in range(size)]
        self.version = [0] * size
        self.present: dict[int, Vector] = {}
        self.carried: list[Vector | None] = [None] * size
        self._inner = [inner() for _ in range(size)]
        self._results: list[Vector] = []

    def is_late(self, rank: int) -> bool:
        """Whether the version that `rank` calls next was started without it."""
        return self.version[rank] < len(self._results)

    def arrive(self, rank: int) -> None:
        """A rank comes with its gradient: late, or to wait for `start`."""
        new = gradient(rank, self.version[rank], self.models[rank])
        carried = self.carried[rank]
        contribution = new if carried is None else carried + new
        if self.is_late(rank):
            self.carried[rank] = contribution
            self._apply(rank)
        else:
            self.present[rank] = contribution

    def start(self) -> list[int]:
        """The version starts with those that are present, who are returned."""
        fresh = sorted(self.present)
        self._results.append(total([self.present[r] for r in fresh]) / self.size)
        for rank in fresh:
            self.carried[rank] = None
            self._apply(rank)
        self.present = {}
        return fresh

    def synchronize(self) -> None:
        """What is carried becomes a result of its own; models, which are equal, are averaged."""
        left = [carried for carried in self.carried if carried is not None]
        self._results.append(total(left) / self.size if left else np.zeros(COMMON + RARE + 1))
        self.carried = [None] * self.size
        for rank in range(self.size):
            if left:
                self._apply(rank)
            self.version[rank] = len(self._results)
        self.models = [total(self.models) / self.size] * self.size

    def _apply(self, rank: int) -> None:
        for result in self._results[self.version[rank] :]:
            self.models[rank] = self._inner[rank](self.models[rank], result)
        self.version[rank] = len(self._results)
