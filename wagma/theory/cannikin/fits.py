"""The times of one node, learned from observations at several batch sizes. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

# Batch sizes that a node remembers.
_SIZES = 8
# Relative error of an observation: taken for granted at first, and the least that is believed.
_NOISE, _LEAST_NOISE = 0.02, 0.002
# A deviation shows another speed if it is above both: a share of the time, and standard deviations.
_SHARE, _DEVIATIONS = 0.03, 3.5
# The mean of the last deviations follows the newest one by this share.
_TREND = 0.3
# However old, observations weigh so much: those at a far batch size tell the slope best, and they
# are scaled where the speed changes.
_LEAST_WEIGHT = 0.05
# The least seconds per sample of backward, relative to all its seconds over all its samples. A node
# whose times happen not to grow with its batch would be given all samples otherwise.
_LEAST_SLOPE = 0.1


@dataclass(frozen=True)
class Line:
    """A time as slope b + intercept, with standard errors."""

    slope: float
    intercept: float
    slope_error: float
    intercept_error: float

    def at(self, batch: float) -> float:
        """Return the time of a batch."""
        return self.slope * batch + self.intercept


@dataclass
class _Size:
    """Mean times of a batch size, and the weight of its observations."""

    batch: float
    a: float
    P: float
    weight: float

    def add(self, other: _Size) -> None:
        """Merge `other` into this entry by weight; points on a line stay on it."""
        self.weight += other.weight
        part = other.weight / self.weight
        self.batch += part * (other.batch - self.batch)
        self.a += part * (other.a - self.a)
        self.P += part * (other.P - self.P)


@dataclass
class NodeFit:
    """Fit a = q b + s and P = k b + m to the observations of one node, online.

    There is one entry for each of a few batch sizes, so that what a size has shown is not forgotten
    while the node has another one; of more sizes, the closest ones are merged. Weights fall with
    the age of the observations, and with the square of the time, because errors of measured times
    grow with these.

    A node that gets slower or faster computes everything so much slower or faster. So where an
    observation deviates from the fit by more than errors explain, what was observed before is
    scaled by the ratio of observed to expected. This keeps the shape of the fit, even if the batch
    never changes again, and a fit of old and new times together would not.

    Attributes:
        forgetting: by how much each observation reduces the weights of those before, 0 to 1.
        noise: variance of an observation, relative to the square of the time.
        trend: mean of the last deviations from the fit, relative to the time.
        changed: whether the last observation showed another speed.
        sizes: the entries, the newest last.
    """

    forgetting: float
    noise: float = _NOISE**2
    trend: float = 0.0
    changed: bool = False
    sizes: list[_Size] = field(default_factory=list)

    def observe(self, batch: float, a: float, P: float) -> None:
        """Add the times of a batch: a >= 0, P > 0, batch > 0."""
        self.changed = bool(self.sizes) and self._rescale(batch, a, P)
        for size in self.sizes:
            size.weight = max(size.weight * self.forgetting, _LEAST_WEIGHT)
        others = [size for size in self.sizes if size.batch != batch]
        same = [size for size in self.sizes if size.batch == batch]
        entry = same[0] if same else _Size(batch, a, P, 0.0)
        self.sizes = [*others, entry]
        entry.add(_Size(batch, a, P, 1.0))
        if len(self.sizes) > _SIZES:
            self._merge()

    @property
    def is_known(self) -> bool:
        """Return whether there were two batch sizes."""
        return len(self.sizes) > 1

    def lines(self) -> tuple[Line, Line] | None:
        """Return the lines of a and of P; None where these are not known."""
        return (self._line("a", 0.0), self._line("P", _LEAST_SLOPE)) if self.is_known else None

    def sample_time(self) -> float | None:
        """Return the newest seconds per sample; None before the first observation."""
        if not self.sizes:
            return None
        return (self.sizes[-1].a + self.sizes[-1].P) / self.sizes[-1].batch

    def state(self) -> dict[str, Any]:
        """Return plain data."""
        sizes = [[size.batch, size.a, size.P, size.weight] for size in self.sizes]
        return {"noise": self.noise, "trend": self.trend, "changed": self.changed, "sizes": sizes}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.noise, self.trend = float(state["noise"]), float(state["trend"])
        self.changed = bool(state["changed"])
        self.sizes = [_Size(*map(float, size)) for size in state["sizes"]]

    def _rescale(self, batch: float, a: float, P: float) -> bool:
        """Scale all entries if an observation shows another speed; return whether it does."""
        lines = self.lines()
        if lines is None:
            before = self.sizes[0]
            if before.batch != batch:
                return False  # nothing is known of other sizes
            expected_a, expected_P, uncertain = before.a, before.P, 1 / self._information(before)
        else:
            expected_a, expected_P = lines[0].at(batch), lines[1].at(batch)
            total, mean, spread = self._moments()
            uncertain = 1 / total + (batch - mean) ** 2 / spread
        expected = expected_a + expected_P
        error, deviation = a + P - expected, math.sqrt(expected**2 + uncertain)
        most = max(abs(error), abs(a - expected_a), abs(P - expected_P))
        sigma = math.sqrt(self.noise)
        changed = most > max(_SHARE * expected, _DEVIATIONS * sigma * deviation)
        # The deviations of a speed that drifts have a mean, which is no error of measurement. What
        # shows another speed counts as an error too, but a bounded one: otherwise errors that
        # are larger than was thought would never be taken for errors.
        seen = min(abs(error / deviation - self.trend), _DEVIATIONS * sigma)
        self.noise += (1 - self.forgetting) * (seen**2 - self.noise)
        self.noise = max(self.noise, _LEAST_NOISE**2)
        self.trend += _TREND * (error / deviation - self.trend)
        if changed:
            self.trend = 0.0
            for size in self.sizes:
                size.a *= a / expected_a if expected_a > 0 else 1.0
                size.P *= P / expected_P
        return changed

    def _merge(self) -> None:
        """Merge the two batch sizes that are closest to each other."""
        by_batch = sorted(range(len(self.sizes)), key=lambda i: self.sizes[i].batch)
        closest = min(
            pairwise(by_batch),
            key=lambda pair: self.sizes[pair[1]].batch / self.sizes[pair[0]].batch,
        )
        older, newer = sorted(closest)
        self.sizes[newer].add(self.sizes[older])
        del self.sizes[older]

    def _information(self, size: _Size) -> float:
        """Return the weight of an entry in a fit, relative to the noise: 1 / seconds^2."""
        return size.weight / (size.a + size.P) ** 2

    def _moments(self) -> tuple[float, float, float]:
        """Return the sum of the weights of all entries, and mean and spread of their batches."""
        weights = [self._information(size) for size in self.sizes]
        total = sum(weights)
        mean = sum(w * size.batch for w, size in zip(weights, self.sizes, strict=True)) / total
        spread = sum(
            w * (size.batch - mean) ** 2 for w, size in zip(weights, self.sizes, strict=True)
        )
        return total, mean, spread

    def _line(self, name: str, least: float) -> Line:
        """Fit a line that no batch makes negative.

        Where the best line falls, or starts below 0, it is the best one of those that do not. All
        go through the mean, or, if they start below 0 otherwise, through 0.

        Args:
            name: "a" or "P".
            least: the slope is at least so much of that of the line through 0 and the mean.
        """
        total, mean, spread = self._moments()
        weights = [self._information(size) for size in self.sizes]
        points = [(w, s.batch, getattr(s, name)) for w, s in zip(weights, self.sizes, strict=True)]
        middle = sum(w * time for w, _, time in points) / total
        slope = sum(w * (batch - mean) * (time - middle) for w, batch, time in points) / spread
        slope = max(slope, least * middle / mean)
        intercept = middle - slope * mean
        if intercept < 0:
            slope = sum(w * batch * time for w, batch, time in points)
            slope /= sum(w * batch**2 for w, batch, _ in points)
            intercept = 0.0
        return Line(
            slope,
            intercept,
            math.sqrt(self.noise / spread),
            math.sqrt(self.noise * (1 / total + mean**2 / spread)),
        )
