"""WAGMA-SGD in numpy for a given order of arrivals: what every call has to return, to the bit.

Written from the paper (Algorithms 1 and 2) and the stated semantics of the collective, and from
nothing in wagma. One call happens at a time: a rank publishes its new model and, unless the version
has been started, starts it with what everybody has published by then.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Published = tuple[int, Vector]  # a version and the model that was published for it


@dataclass(frozen=True)
class Expected:
    """What a call returns."""

    version: int
    late: bool
    merged: bool
    skipped: int
    weight: float
    contributors: tuple[int, ...]
    versions: tuple[int, ...]
    model: Vector


def group_of(rank: int, size: int, group_size: int, version: int) -> tuple[int, ...]:
    """Algorithm 1: whom the log2(S) pairwise exchanges of version t reach; powers of two."""
    p, s = size.bit_length() - 1, group_size.bit_length() - 1
    members = [rank]
    for phase in range(s):
        mask = 1 << (version * s + phase) % p
        members += [member ^ mask for member in members]
    return tuple(sorted(members))


class Model:
    """All ranks of a run.

    Args:
        initial: what each rank has published before its first version.
        group_size: S >= 2; it and the number of ranks are powers of two.
        period: tau, or None: no version synchronises.
        activation: "world": the first rank of all starts a version for every group; "group": the
            first of each group for its own.
        fixed: the groups are those of version 0.
        fast_forward: a late rank goes on with the version after the one that it merged.
        window: versions that a rank may be ahead of the slowest.
    """

    def __init__(
        self,
        initial: list[Vector],
        group_size: int,
        *,
        period: int | None,
        activation: str = "world",
        fixed: bool = False,
        fast_forward: bool = False,
        window: int = 64,
    ) -> None:
        self.size = len(initial)
        self.version = [0] * self.size
        self._published: list[Published] = [(-1, model) for model in initial]
        self._newest = [-1] * self.size  # version that a rank took part in or merged
        self._started: dict[tuple[int, int], dict[int, Published]] = {}  # (version, lowest rank)
        self._group_size = group_size
        self._period = period
        self._world = activation == "world"
        self._fixed = fixed
        self._fast_forward = fast_forward
        self._window = window

    def synchronises(self, rank: int) -> bool:
        """Whether the next version of `rank` waits for everybody (Algorithm 2, line 7)."""
        return self._period is not None and (self.version[rank] + 1) % self._period == 0

    def waits(self, rank: int) -> bool:
        """Whether a call of `rank` would wait now."""
        slowest = min(version for version, _ in self._published)
        return self.synchronises(rank) or slowest < self.version[rank] - self._window

    def _group(self, rank: int, version: int) -> tuple[int, ...]:
        return group_of(rank, self.size, self._group_size, 0 if self._fixed else version)

    def call(self, rank: int, model: Vector) -> Expected:
        """Algorithm 2, lines 9 to 14, for a rank whose own step led to `model`."""
        t = self.version[rank]
        self._published[rank] = (t, model)
        mine = self._group(rank, t)
        fresh = (t, mine[0]) not in self._started
        if fresh:
            for member in range(self.size) if self._world else [rank]:
                group = self._group(member, t)
                # Who skipped this version may have published a later one, which is not for it.
                inputs = {m: p for m in group if (p := self._published[m])[0] <= t}
                self._started.setdefault((t, group[0]), inputs)
            taken = t
        else:
            taken = max(
                version
                for version, leader in self._started
                if version >= t and leader == self._group(rank, version)[0]
            )
        if not fresh and taken <= self._newest[rank]:
            self.version[rank] = t + 1
            return Expected(t, True, False, 0, 1.0, (), (), model)
        self._newest[rank] = max(taken, self._newest[rank])
        skipped = taken - t if self._fast_forward else 0
        self.version[rank] = t + skipped + 1
        inputs = self._started[taken, self._group(rank, taken)[0]]
        total = _sum([inputs[m][1] for m in sorted(inputs)])
        weight = len(inputs)
        if not fresh:
            total = total + model
            weight += 1
        versions = tuple(inputs[m][0] for m in sorted(inputs))
        return Expected(
            t, not fresh, True, skipped, weight, tuple(sorted(inputs)), versions, total / weight
        )

    def synchronise(self, models: list[Vector]) -> list[Expected]:
        """Line 16: everybody averages the new models of all, and waits for them."""
        (t,) = set(self.version)
        self._published = [(t, model) for model in models]
        self._newest = [t] * self.size
        self._started.clear()
        self.version = [t + 1] * self.size
        mean = _sum(models) / self.size
        everyone = tuple(range(self.size))
        return [
            Expected(t, False, True, 0, self.size, everyone, (t,) * self.size, mean)
            for _ in everyone
        ]


def arrivals(model: Model, steps: int, seed: int) -> Iterator[int | None]:
    """Whose call comes next, None: everybody's, which synchronises.

    Speeds change every now and then and reach from one to thirty, so that ranks come in any order
    and some fall behind by many versions.
    """
    rng = random.Random(seed)
    speed = [1.0] * model.size
    while True:
        if rng.random() < 0.02:
            speed = [rng.choice((1.0, 5.0, 30.0)) for _ in speed]
        ready = [r for r in range(model.size) if model.version[r] < steps]
        if not ready:
            return
        free = [r for r in ready if not model.waits(r)]
        if free:
            yield rng.choices(free, [speed[r] for r in free])[0]
        else:
            yield None


def _sum(models: list[Vector]) -> Vector:
    """In the order of the ranks: floating-point sums depend on it."""
    total = models[0].copy()
    for model in models[1:]:
        total += model
    return total
