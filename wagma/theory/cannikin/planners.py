"""From what nodes have measured to the next epoch's batches: Cannikin and its baselines. Pure.

Every rank runs the same planner on the same numbers, so that all make the same plan.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, SupportsIndex, get_args

import numpy as np

from wagma.inject.checks import check_count
from wagma.theory.cannikin.cluster import batch_time
from wagma.theory.cannikin.first_epochs import distinct_batches, initial_batches
from wagma.theory.cannikin.learner import PerformanceLearner
from wagma.theory.cannikin.noise import NoiseScale, NoiseScaleAverage
from wagma.theory.cannikin.optimum import integer_batches
from wagma.theory.cannikin.total_batch import choose_total_batch, goodput

__all__ = ["BASELINES", "Baseline", "Measured", "Plan", "Planner", "check_range", "make_planner"]

Baseline = Literal["even", "lb-bsp", "adaptdl"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)

CANDIDATES = 32  # total batches that are compared
_SMOOTHING = 0.8  # of the noise scale, from one epoch to the next
# By which share the goodput has to grow for another total batch. Integers make it a jagged function
# of the total, with maxima that are far apart and equal but for errors of measurement.
_WORTH = 0.01


@dataclass(frozen=True)
class Plan:
    """How a total batch is divided, until the next plan.

    Attributes:
        batches: samples of each rank, b_i.
        predicted: seconds of a step; None: the nodes are not known yet.
        bottlenecks: of each rank, "compute" or "communication"; None: as above.
        noise_scale: B_noise, samples, that the total batch was chosen by; None: it was given.
        measured: seconds of a step with it, so far; None: too few were measured. It does not count
            where plans are compared.
    """

    batches: tuple[int, ...]
    predicted: float | None = None
    bottlenecks: tuple[str, ...] | None = None
    noise_scale: float | None = None
    measured: float | None = field(default=None, compare=False)

    @property
    def total_batch(self) -> int:
        """Samples of a step, B."""
        return sum(self.batches)

    def __str__(self) -> str:
        shares = " + ".join(map(str, self.batches[:16]))
        more = f" + ... ({len(self.batches)} ranks)" if len(self.batches) > 16 else ""
        known = "learning" if self.predicted is None else f"predicted {self.predicted:.4g} s"
        took = "" if self.measured is None else f", measured {self.measured:.4g} s"
        return f"{self.total_batch} = {shares}{more} samples, {known}{took}"


@dataclass(frozen=True)
class Measured:
    """What the ranks have measured with one plan, in typical steps.

    Attributes:
        batches: b_i, samples: n of them, and of the following.
        a: seconds before backward.
        P: seconds of backward.
        gammas: share of backward until the first bucket left.
        overlap_times: T_o that each has seen, seconds.
        last_bucket_times: T_u that each has seen, seconds.
        step: seconds of a step.
        noise: estimate of the noise scale; None: not measured.
    """

    batches: Sequence[int]
    a: Sequence[float]
    P: Sequence[float]
    gammas: Sequence[float]
    overlap_times: Sequence[float]
    last_bucket_times: Sequence[float]
    step: float
    noise: NoiseScale | None = None


class Planner(ABC):
    """Choose batches, epoch by epoch.

    Args:
        nodes: n.
        smallest, largest: of the total batch, samples; the first is the base batch B_0.
        max_batches: samples that fit into each node's memory; None: no limit.

    Raises:
        ValueError: the total batch is below one sample per node, or above the sum of the limits.

    Attributes:
        smallest, max_batches: as given.
        noise: the average of the noise scales so far.
    """

    def __init__(
        self, nodes: int, smallest: int, largest: int, max_batches: Sequence[int | None]
    ) -> None:
        self._nodes, self.smallest, self._largest = nodes, smallest, largest
        self.max_batches = list(max_batches)
        self._limits = [largest if one is None else min(one, largest) for one in max_batches]
        self.noise = NoiseScaleAverage(_SMOOTHING)
        self._evens: dict[int, tuple[int, ...]] = {}  # by total batch
        if smallest < nodes:
            raise ValueError(
                f"a total batch of {smallest} is below {nodes}, one sample for each rank: raise it"
            )
        if largest > sum(self._limits):
            raise ValueError(
                f"a total batch of {largest} is above {sum(self._limits)}, the sum of all ranks' "
                "max_batch: lower it, or add ranks"
            )

    def first(self) -> Plan:
        """Return the plan of the first epoch: an even split."""
        return Plan(self._even(self.smallest))

    def next(self, measured: Measured) -> Plan:
        """Return the plan of the next epoch."""
        if measured.noise is not None:
            self.noise.update(measured.noise)
        return self._plan(measured)

    @abstractmethod
    def _plan(self, measured: Measured) -> Plan:
        """Return the plan that follows what was measured."""

    def _even(self, total: int) -> tuple[int, ...]:
        """Return an even split of a total batch, as far as the limits allow."""
        if total not in self._evens:
            batches = initial_batches(np.ones(self._nodes), total, self._limits)
            self._evens[total] = tuple(batches.tolist())
        return self._evens[total]

    def _candidates(self) -> list[int]:
        """Return the total batches that are compared."""
        found = np.geomspace(self.smallest, self._largest, CANDIDATES)
        return sorted({*found.round().astype(int).tolist()})

    @property
    def _scale(self) -> float:
        return self.noise.average.scale

    def allows(self, batches: Sequence[int]) -> bool:
        """Return whether these batches are within all limits."""
        fit = all(batch <= most for batch, most in zip(batches, self._limits, strict=True))
        return fit and self.smallest <= sum(batches) <= self._largest

    def state_dict(self) -> dict[str, Any]:
        """Return what was learned, as plain lists and numbers."""
        return {"noise": self.noise.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.noise.load_state_dict(state["noise"])


class _Even(Planner):
    """An even split of one total batch, as DDP's."""

    def _plan(self, measured: Measured) -> Plan:  # noqa: ARG002 (whatever was measured)
        return self.first()


class _LBBSP(Planner):
    """LB-BSP (Chen et al., 2020): move `delta` samples from the slowest rank to the fastest."""

    delta = 5

    def _plan(self, measured: Measured) -> Plan:
        batches = np.array(measured.batches)
        times = np.add(measured.a, measured.P)
        slow, fast = int(times.argmax()), int(times.argmin())
        moved = min(self.delta, batches[slow] - 1, self._limits[fast] - batches[fast])
        batches[slow] -= moved
        batches[fast] += moved
        return Plan(tuple(batches.tolist()))


class _Learning(Planner):
    """A planner that has learned the nodes' times."""

    def __init__(
        self, nodes: int, smallest: int, largest: int, max_batches: Sequence[int | None]
    ) -> None:
        super().__init__(nodes, smallest, largest, max_batches)
        self.learner = PerformanceLearner(
            nodes, max_batches=self.max_batches, min_batches=[1] * nodes
        )

    def next(self, measured: Measured) -> Plan:
        """Return the plan of the next epoch."""
        self.learner.observe(
            measured.batches,
            measured.a,
            measured.P,
            gammas=measured.gammas,
            overlap_times=measured.overlap_times,
            last_bucket_times=[_last_bucket_time(measured)] * len(measured.a),
        )
        return super().next(measured)

    def _distinct(self, measured: Measured) -> Plan:
        """Return batches that make the nodes known."""
        times, total = self.learner.sample_times(), sum(measured.batches)
        others = (math.ceil(1.5 * total), 2 * total, self._largest, math.floor(total / 1.5))
        for one in (total, *others):
            if self.smallest <= one <= self._largest:
                try:
                    batches = distinct_batches(measured.batches, times, one, self._limits)
                except ValueError:  # there are none: the total is small, or there is one node
                    continue
                return Plan(tuple(batches.tolist()))
        return Plan(tuple(measured.batches))

    def state_dict(self) -> dict[str, Any]:
        """Return what was learned, as plain lists and numbers."""
        return {**super().state_dict(), "learner": self.learner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        super().load_state_dict(state)
        self.learner.load_state_dict(state["learner"])


class _Cannikin(_Learning):
    """The fastest batches, of the total batch with the largest goodput.

    The total stays as it is where another one would be hardly better.
    """

    def _plan(self, measured: Measured) -> Plan:
        if self.learner.unknown:
            return self._distinct(measured)
        cluster = self.learner.cluster()
        if self.smallest == self._largest:
            best, noise = integer_batches(cluster, self.smallest), None
        else:
            noise = self._scale
            choose = partial(
                choose_total_batch, cluster, noise_scale=noise, base_batch=self.smallest
            )
            found, now = choose(self._candidates()), choose([sum(measured.batches)])
            best = (found if found.goodput > (1 + _WORTH) * now.goodput else now).plan
        return Plan(tuple(best.batches.tolist()), best.time, best.bottlenecks, noise)


class _AdaptDL(_Learning):
    """AdaptDL-like: even splits, of the total batch with the largest goodput.

    The total stays as it is where another one would be hardly better.
    """

    def _plan(self, measured: Measured) -> Plan:
        if self.learner.unknown:
            total = min(self._largest, math.ceil(1.5 * sum(measured.batches)))
            if total == sum(measured.batches):
                total = max(self.smallest, math.floor(total / 1.5))
            return Plan(self._even(total))
        cluster, noise = self.learner.cluster(), self._scale

        def of(total: int) -> float:
            time = batch_time(cluster, self._even(total))
            return goodput(total, time, noise, self.smallest)

        # As many samples on each rank: a step takes as long as its largest batch.
        whole = {
            min(max(round(total / self._nodes) * self._nodes, self.smallest), self._largest)
            for total in self._candidates()
        }
        total, now = max(sorted(whole), key=of), sum(measured.batches)
        batches = self._even(total if of(total) > (1 + _WORTH) * of(now) else now)
        return Plan(
            batches,
            batch_time(cluster, batches),
            cluster.bottlenecks(np.array(batches, np.float64)),
            noise,
        )


def _last_bucket_time(measured: Measured) -> float:
    """Return T_u as what (7) leaves of the step.

    What a node sees of it is too little: while others reduce their part, or are not woken yet, it
    waits, and it does not know that this is no waiting for their gradients. What is left also has
    by how much the slowest node of a step is slower than each node usually is.
    """
    a, P = np.array(measured.a), np.array(measured.P)
    syncs = a + np.array(measured.gammas) * P + min(measured.overlap_times)
    left = measured.step - float(np.maximum(a + P, syncs).max())
    return max(left, min(measured.last_bucket_times))


def check_range(
    batch_range: int | tuple[int, int], baseline: Baseline | None = None
) -> tuple[int, int]:
    """Return the smallest and the largest total batch; see `make_planner`."""
    if isinstance(batch_range, str):
        raise TypeError(f"batch_range={batch_range!r} must be a number, or (smallest, largest)")
    ends = batch_range if isinstance(batch_range, Sequence) else (batch_range, batch_range)
    if len(ends) != 2:
        raise ValueError(f"batch_range={batch_range!r} must be a number, or (smallest, largest)")
    smallest, largest = (check_count("batch_range", end, 1) for end in ends)
    if smallest > largest:
        raise ValueError(f"batch_range={batch_range!r} must be (smallest, largest)")
    if baseline not in (None, *BASELINES):
        known = ", ".join(map(repr, BASELINES))
        raise ValueError(f"baseline={baseline!r} must be one of {known}, or None for Cannikin")
    if baseline in ("even", "lb-bsp") and smallest < largest:
        raise ValueError(
            f"batch_range={batch_range!r} with baseline={baseline!r}, which has one total batch: "
            "pass a number"
        )
    return smallest, largest


def make_planner(
    nodes: SupportsIndex,
    batch_range: int | tuple[int, int],
    max_batches: Sequence[int | None] | None = None,
    baseline: Baseline | None = None,
) -> Planner:
    """Return what chooses the batches of `nodes` ranks.

    Args:
        nodes: n, >= 1.
        batch_range: the total batch; or the smallest, which is the base batch, and the largest.
        max_batches: samples that fit into each node's memory, None: no limit; n of them. None: none
            has one.
        baseline: None: Cannikin. "even": an even split, as with DDP. "lb-bsp": 5 samples per epoch
            move from the slowest to the fastest. "adaptdl": an even split, of the total batch with
            the largest goodput.

    Raises:
        ValueError: a value is out of its range, or the baseline has one total batch and a range is
            given.
        TypeError: a value is of a wrong type.
    """
    count = check_count("nodes", nodes, 1)
    smallest, largest = check_range(batch_range, baseline)
    limits: list[int | None] = [None] * count if max_batches is None else list(max_batches)
    kinds: dict[str | None, type[Planner]] = {
        None: _Cannikin,
        "even": _Even,
        "lb-bsp": _LBBSP,
        "adaptdl": _AdaptDL,
    }
    return kinds[baseline](count, smallest, largest, limits)
