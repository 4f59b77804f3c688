"""late="skip" and "carry" in numpy for a given order of arrivals: what every call has to return.

Written from the stated semantics of the collective, and from nothing in wagma. The group is the
world and the weights are 1.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """What a call returns."""

    version: int
    late: bool
    weight: float
    contributors: tuple[int, ...]
    results: list[Vector]


class Model:
    """All ranks of a run.

    Args:
        size: number of ranks.
        quorum: ranks that start a version.
        carry: what was left out is added to the rank's next contribution.
        period: every so many versions all ranks start one; None: never.
        window: versions that a rank may be ahead of the slowest.
    """

    def __init__(
        self, size: int, quorum: int, *, carry: bool, period: int | None, window: int
    ) -> None:
        self.size = size
        self.version = [0] * size
        self.carried: list[Vector | None] = [None] * size
        self.present: dict[int, Vector] = {}  # who waits for the next version to start
        self._published = [-1] * size
        self._started: list[dict[int, Vector]] = []  # the contributions of each version
        self._quorum = quorum
        self._carry = carry
        self._period = period
        self._window = window

    def waits(self, rank: int) -> bool:
        """Whether the window keeps `rank` from publishing."""
        return min(self._published) < self.version[rank] - self._window

    def arrive(self, rank: int, x: Vector) -> list[tuple[int, Expected]]:
        """Whose calls return when `rank` has come with `x`: its own, everybody's present, no one's.

        Ranks that are present are at the same version: the one that starts next.
        """
        t = self.version[rank]
        carried = self.carried[rank]
        contribution = x if carried is None else carried + x
        self._published[rank] = t
        if t < len(self._started):
            self.carried[rank] = contribution if self._carry else None
            self.version[rank] = len(self._started)
            return [(rank, self._outcome(t, late=True))]
        self.present[rank] = contribution
        synchronises = self._period is not None and (t + 1) % self._period == 0
        if len(self.present) < (self.size if synchronises else self._quorum):
            return []
        self._started.append(self.present)
        self.present = {}
        for fresh in self._started[t]:
            self.carried[fresh] = None
            self.version[fresh] = t + 1
        return [(fresh, self._outcome(t, late=False)) for fresh in self._started[t]]

    def _outcome(self, t: int, *, late: bool) -> Expected:
        newest = self._started[-1]
        results = [_sum(inputs) / self._divisor(inputs) for inputs in self._started[t:]]
        return Expected(t, late, self._divisor(newest), tuple(sorted(newest)), results)

    def _divisor(self, inputs: dict[int, Vector]) -> int:
        """Absent ranks count as zeros where they carry, and not at all where they are skipped."""
        return self.size if self._carry else len(inputs)


def _sum(inputs: dict[int, Vector]) -> Vector:
    """In the order of the ranks: floating-point sums depend on it."""
    first, *others = sorted(inputs)
    total = inputs[first].copy()
    for rank in others:
        total += inputs[rank]
    return total
