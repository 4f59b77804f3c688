"""Delays by rank and step: pure functions of the arguments and the seed.

Step t takes its random numbers from its own blocks of a counter-based generator (Philox), whose key
is the seed. So a draw does not depend on which were made before, and every rank can compute the
delays of all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import Seconds, check_count, check_number, check_rank

Floats = npt.NDArray[np.float64]
# Entropy of numpy.random.SeedSequence: integers >= 0.
Seed = int | tuple[int, ...]

# 64-bit numbers that Philox makes of each value of its counter.
BLOCK = 4


class Delays(ABC):
    """Seconds by which each rank is delayed at each step; immutable, thread-safe.

    A step is any number >= 0: a version, or ``version * M + m`` for the m-th of M micro-batches.

    Attributes:
        name: in the text form, see `parse`.
        size: ranks P, >= 1.
    """

    name: ClassVar[str]
    size: int

    def table(self, steps: SupportsIndex, first: SupportsIndex = 0) -> Floats:
        """Return the delays of ``steps`` steps from `first` on: float64 [steps, P], seconds."""
        return self._draw(check_count("steps", steps, 0), check_count("first", first, 0))

    def delays(self, step: SupportsIndex) -> Floats:
        """Return the delays of all ranks at one step: float64 [P], in seconds."""
        row: Floats = self._draw(1, check_count("step", step, 0))[0]
        return row

    def delay(self, rank: SupportsIndex, step: SupportsIndex) -> float:
        """Return the seconds by which `rank` is delayed at `step`."""
        return float(self.delays(step)[check_rank(rank, self.size)])

    @abstractmethod
    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""

    @abstractmethod
    def _draw(self, steps: int, first: int) -> Floats: ...


def _uniforms(seed: Seed, steps: int, first: int, count: int) -> Floats:
    """`count` numbers in [0, 1) for each of `steps` steps: [steps, count].

    Of the generator only its raw output is used, which is the same in all releases of numpy.
    """
    blocks = -(-count // BLOCK)
    raw = np.random.Philox(seed, counter=first * blocks).random_raw(steps * blocks * BLOCK)
    rows = raw.reshape(steps, blocks * BLOCK)[:, :count]
    return np.ldexp((rows >> np.uint64(11)).astype(np.float64), -53)


def _normals(seed: Seed, steps: int, first: int, count: int) -> Floats:
    """Standard normal numbers, [steps, count], by the method of Box and Muller."""
    uniforms = _uniforms(seed, steps, first, 2 * count)
    squares, turns = uniforms[:, :count], uniforms[:, count:]
    normals: Floats = np.sqrt(-2 * np.log1p(-squares)) * np.cos(2 * np.pi * turns)
    return normals


def bounded_lognormal(
    normals: Floats, mean: float = 0.5, sigma: float = 1.0, cap: float = 5.5
) -> Floats:
    """Return min(eps, cap) of lognormal eps with this mean, made of standard normal numbers.

    The defaults are DropCompute's: eps = Z / (2 exp(4.5)), Z of LogNormal(4, 1).

    Args:
        normals: standard normal, of any shape, which is that of the result.
        mean: of eps, > 0.
        sigma: standard deviation of log(eps).
        cap: the largest value.
    """
    location = np.log(mean) - sigma**2 / 2
    bounded: Floats = np.minimum(np.exp(location + sigma * normals), cap)
    return bounded


def _check_seed(seed: Seed) -> None:
    for part in seed if isinstance(seed, tuple) else (seed,):
        check_count("seed", part, 0)


def _check_factors(factors: tuple[float, ...], size: int) -> tuple[float, ...]:
    if factors and len(factors) != size:
        raise ValueError(f"{len(factors)} factors for {size} ranks: one for each is needed")
    return tuple(check_number("a factor", factor) for factor in factors)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:g} ms"


@dataclass(frozen=True)
class Paper(Delays):
    """At every step some ranks, drawn anew, are delayed: WAGMA-SGD's evaluation (2 by 320 ms).

    Attributes:
        size: ranks P.
        delayed_ranks: how many of them, 0 to P.
        seconds: of each of their delays.
        seed: of the draws.
    """

    name = "paper"
    size: int
    delayed_ranks: int = 2
    seconds: Seconds = 0.32
    seed: Seed = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_count("size", self.size, 1)
        check_count("delayed_ranks", self.delayed_ranks, 0, self.size)
        check_number("seconds", self.seconds)
        _check_seed(self.seed)

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        delay = _milliseconds(self.seconds)
        return f"{self.delayed_ranks} of them delayed by {delay} at every step"

    def _draw(self, steps: int, first: int) -> Floats:
        order = np.argsort(_uniforms(self.seed, steps, first, self.size), axis=1, kind="stable")
        table = np.zeros((steps, self.size))
        np.put_along_axis(table, order[:, : self.delayed_ranks], self.seconds, axis=1)
        return table


@dataclass(frozen=True)
class OneServer(Delays):
    """One rank, always the same, is delayed.

    Attributes:
        size: ranks P.
        rank: the slow one.
        seconds: of each of its delays.
        period: it is delayed at the steps 0, period, 2 period and so on.
    """

    name = "one-server"
    size: int
    rank: int
    seconds: Seconds
    period: int = 1

    def __post_init__(self) -> None:
        check_count("size", self.size, 1)
        check_rank(self.rank, self.size)
        check_number("seconds", self.seconds)
        check_count("period", self.period, 1)

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        when = "at every step" if self.period == 1 else f"once in {self.period} steps"
        return f"rank {self.rank} delayed by {_milliseconds(self.seconds)} {when}"

    def _draw(self, steps: int, first: int) -> Floats:
        table = np.zeros((steps, self.size))
        table[-first % self.period :: self.period, self.rank] = self.seconds
        return table


@dataclass(frozen=True)
class Heterogeneous(Delays):
    """Every rank has its own constant delay, ``seconds * factor``.

    Attributes:
        size: ranks P.
        seconds: the delay of a rank of factor 1.
        factors: one per rank, >= 0; none: from 1 to 4 as in Cannikin's cluster C, whose equal
            processors are shared, with shares from 1 evenly down to 1/4.
    """

    name = "heterogeneous"
    size: int
    seconds: Seconds
    factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_count("size", self.size, 1)
        check_number("seconds", self.seconds)
        object.__setattr__(self, "factors", _check_factors(self.factors, self.size))

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        delays = 1e3 * self.delays(0)
        return f"each with its delay, {delays.min():g} to {delays.max():g} ms, at every step"

    def _draw(self, steps: int, first: int) -> Floats:  # noqa: ARG002 all steps are alike
        factors = np.array(self.factors or 1 / np.linspace(1, 0.25, self.size))
        return np.tile(self.seconds * factors, (steps, 1))


@dataclass(frozen=True)
class Exponential(Delays):
    """Exponential delays, independent for each rank and step: K-sync's and fastest-k SGD's.

    Attributes:
        size: ranks P.
        seconds: the mean delay of a rank of factor 1.
        factors: one per rank, >= 0, by which its delays are multiplied; none: all 1.
        seed: of the draws.
    """

    name = "exponential"
    size: int
    seconds: Seconds
    factors: tuple[float, ...] = ()
    seed: Seed = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_count("size", self.size, 1)
        check_number("seconds", self.seconds)
        object.__setattr__(self, "factors", _check_factors(self.factors, self.size))
        _check_seed(self.seed)

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        own = ", times a factor of its own," if self.factors else ""
        return f"each delayed by {_milliseconds(self.seconds)} on average{own} at every step"

    def _draw(self, steps: int, first: int) -> Floats:
        means = self.seconds * np.array(self.factors or (1.0,) * self.size)
        uniforms = _uniforms(self.seed, steps, first, self.size)
        table: Floats = -means * np.log1p(-uniforms)
        return table


@dataclass(frozen=True)
class Lognormal(Delays):
    """Lognormal delays, independent for each rank and step.

    A delay is ``seconds * min(eps, cap)`` with lognormal eps. The defaults are those of
    `DropCompute`: of mean 1/2, cut off at 5.5.

    Attributes:
        size: ranks P.
        seconds: of a step, or of one of its micro-batches, without delay.
        mean: of eps, > 0.
        sigma: standard deviation of log(eps).
        cap: the largest eps; may be infinite.
        seed: of the draws.
    """

    name = "lognormal"
    size: int
    seconds: Seconds
    mean: float = 0.5
    sigma: float = 1.0
    cap: float = 5.5
    seed: Seed = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_count("size", self.size, 1)
        for name in ("seconds", "mean", "sigma"):
            check_number(name, getattr(self, name))
        if self.mean == 0:
            raise ValueError("mean is 0.0: more than 0 is needed")
        check_number("cap", self.cap, infinite=True)
        _check_seed(self.seed)

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        mean = _milliseconds(self.seconds * self.mean)
        return f"each delayed by about {mean} on average (lognormal) at every step"

    def _draw(self, steps: int, first: int) -> Floats:
        normals = _normals(self.seed, steps, first, self.size)
        return self.seconds * bounded_lognormal(normals, self.mean, self.sigma, self.cap)


@dataclass(frozen=True)
class DropCompute(Delays):
    """Delays of DropCompute's simulated environment, independent for each rank and micro-batch.

    A delay is ``mean * min(Z / (2 exp(4.5)), 5.5)`` with Z of LogNormal(4, 1), as
    `wagma.theory.dropcompute.delays` draws it: a micro-batch takes 1.5 times as long on average,
    and at most 6.5 times. A step is a micro-batch here, ``version * M + m`` for the m-th of M.

    Attributes:
        size: ranks P.
        mean: seconds of a micro-batch without delay.
        seed: of the draws.
    """

    name = "dropcompute"
    size: int
    mean: Seconds
    seed: Seed = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_count("size", self.size, 1)
        check_number("mean", self.mean)
        _check_seed(self.seed)

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        mean = _milliseconds(self.mean / 2)
        return f"each delayed by about {mean} on average (DropCompute's) at every micro-batch"

    def _draw(self, steps: int, first: int) -> Floats:
        return self.mean * bounded_lognormal(_normals(self.seed, steps, first, self.size))


@dataclass(frozen=True)
class Normal(Delays):
    """Normally distributed delays, independent for each rank and step; negative ones are 0.

    Attributes:
        size: ranks P.
        seconds: the mean.
        deviation: the standard deviation, in seconds.
        seed: of the draws.
    """

    name = "normal"
    size: int
    seconds: Seconds
    deviation: Seconds
    seed: Seed = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_count("size", self.size, 1)
        check_number("seconds", self.seconds)
        check_number("deviation", self.deviation)
        _check_seed(self.seed)

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        mean, deviation = _milliseconds(self.seconds), _milliseconds(self.deviation)
        return f"each delayed by {mean} +- {deviation} at every step"

    def _draw(self, steps: int, first: int) -> Floats:
        normals = _normals(self.seed, steps, first, self.size)
        return np.maximum(0.0, self.seconds + self.deviation * normals)
