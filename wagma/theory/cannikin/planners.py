"""Planners of the next epoch's batches: Cannikin and its baselines. Pure.

Every rank runs the same planner on the same measurements, so all ranks get the same plan.
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

Baseline = Literal["even", "lb-bsp", "adaptdl"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)

CANDIDATES = 32  # total batches that are compared
_SMOOTHING = 0.8  # of the noise scale, from one epoch to the next
# Relative gain in goodput that justifies another total batch. With integer batches the goodput is
# a jagged function of the total: distant maxima differ by less than errors of measurement.
_MIN_GAIN = 0.01


@dataclass(frozen=True)
class Plan:
    """Division of a total batch among the ranks, valid until the next plan.

    Attributes:
        batches: samples of each rank, b_i.
        predicted: seconds of a step; None: the model of the nodes is not known yet.
        bottlenecks: bottleneck of each rank, "compute" or "communication"; None: as above.
        noise_scale: B_noise, samples, for which the total batch was chosen; None: it was given.
        measured: mean seconds of the plan's steps so far; None: too few steps were measured.
            Comparisons of plans ignore it.
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

    @property
    def prediction_error(self) -> float:
        """Relative error of the predicted seconds; NaN where a figure is missing."""
        if not self.predicted or not self.measured:
            return math.nan
        return self.predicted / self.measured - 1

    def __str__(self) -> str:
        shares = " + ".join(map(str, self.batches[:16]))
        more = f" + ... ({len(self.batches)} ranks)" if len(self.batches) > 16 else ""
        known = "learning" if self.predicted is None else f"predicted {self.predicted:.4g} s"
        took = "" if self.measured is None else f", measured {self.measured:.4g} s"
        return f"{self.total_batch} = {shares}{more} samples, {known}{took}"


@dataclass(frozen=True)
class Measured:
    """Measurements of all n ranks under one plan, in typical steps.

    Attributes:
        batches: b_i, samples of each rank.
        a: seconds before backward, of each rank.
        P: seconds of backward, of each rank.
        gammas: share of backward until the first bucket was sent, of each rank.
        overlap_times: T_o as each rank measured it, seconds.
        last_bucket_times: T_u as each rank measured it, seconds.
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
        smallest, largest: range of the total batch, samples; `smallest` is the base batch B_0.
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
        self._even_splits: dict[int, tuple[int, ...]] = {}  # by total batch
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
        """Return the plan that follows these measurements."""

    def _even(self, total: int) -> tuple[int, ...]:
        """Return an even split of a total batch, as far as the limits allow."""
        if total not in self._even_splits:
            batches = initial_batches(np.ones(self._nodes), total, self._limits)
            self._even_splits[total] = tuple(batches.tolist())
        return self._even_splits[total]

    @property
    def learns(self) -> bool:
        """Whether the planner learns the nodes' times, for which their batches have to vary."""
        return False

    def _candidates(self) -> list[int]:
        """Return the total batches to compare."""
        totals = np.geomspace(self.smallest, self._largest, CANDIDATES)
        return sorted({*totals.round().astype(int).tolist()})

    @property
    def _scale(self) -> float:
        return self.noise.average.scale

    def allows(self, batches: Sequence[int]) -> bool:
        """Return whether these batches respect all limits."""
        fit = all(batch <= most for batch, most in zip(batches, self._limits, strict=True))
        return fit and self.smallest <= sum(batches) <= self._largest

    def state_dict(self) -> dict[str, Any]:
        """Return what was learned, as plain lists and numbers."""
        return {"noise": self.noise.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.noise.load_state_dict(state["noise"])


class _Even(Planner):
    """Split one total batch evenly, as DDP does."""

    def _plan(self, measured: Measured) -> Plan:  # noqa: ARG002 (measurements do not matter)
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
    """Learn the nodes' times."""

    def __init__(
        self, nodes: int, smallest: int, largest: int, max_batches: Sequence[int | None]
    ) -> None:
        super().__init__(nodes, smallest, largest, max_batches)
        self.learner = PerformanceLearner(
            nodes, max_batches=self.max_batches, min_batches=[1] * nodes
        )

    @property
    def learns(self) -> bool:
        """Return whether there are several nodes."""
        return self._nodes > 1

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
        """Return batches from which the learner gets a model of every node."""
        times, total = self.learner.sample_times(), sum(measured.batches)
        others = (math.ceil(1.5 * total), 2 * total, self._largest, math.floor(total / 1.5))
        for one in (total, *others):
            if self.smallest <= one <= self._largest:
                try:
                    batches = distinct_batches(measured.batches, times, one, self._limits)
                except ValueError:  # impossible: the total is too small, or there is one node
                    continue
                return Plan(tuple(batches.tolist()))
        return Plan(tuple(measured.batches))

    def state_dict(self) -> dict[str, Any]:
        """Return what was learned, as plain lists and numbers."""
        return {**super().state_dict(), "learner": self.learner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.learner.load_state_dict(state["learner"])


class _Cannikin(_Learning):
    """Choose the fastest batches of the total batch with the largest goodput.

    The total changes only if the goodput grows by more than `_MIN_GAIN`.
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
            new, now = choose(self._candidates()), choose([sum(measured.batches)])
            best = (new if new.goodput > (1 + _MIN_GAIN) * now.goodput else now).plan
        return Plan(tuple(best.batches.tolist()), best.time, best.bottlenecks, noise)


class _AdaptDL(_Learning):
    """Split the total batch with the largest goodput evenly, as AdaptDL does.

    The total changes only if the goodput grows by more than `_MIN_GAIN`.
    """

    def _plan(self, measured: Measured) -> Plan:
        if self.learner.unknown:
            total = min(self._largest, math.ceil(1.5 * sum(measured.batches)))
            if total == sum(measured.batches):
                total = max(self.smallest, math.floor(total / 1.5))
            return Plan(self._even(total))
        cluster, noise = self.learner.cluster(), self._scale

        def goodput_of(total: int) -> float:
            time = batch_time(cluster, self._even(total))
            return goodput(total, time, noise, self.smallest)

        # Equal batches: a step takes as long as its largest batch.
        multiples = {
            min(max(round(total / self._nodes) * self._nodes, self.smallest), self._largest)
            for total in self._candidates()
        }
        total, now = max(sorted(multiples), key=goodput_of), sum(measured.batches)
        gains = goodput_of(total) > (1 + _MIN_GAIN) * goodput_of(now)
        batches = self._even(total if gains else now)
        return Plan(
            batches,
            batch_time(cluster, batches),
            cluster.bottlenecks(np.array(batches, np.float64)),
            noise,
        )


def _last_bucket_time(measured: Measured) -> float:
    """Return T_u as the remainder of the step's time after the other terms of (7).

    The T_u that a node measures is too small: it takes the time in which others reduce their part,
    or wake up, for waiting for their gradients. The remainder also includes by how much the slowest
    node of a step exceeds its usual time.
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
    """Create the planner for `nodes` ranks.

    Args:
        nodes: n, >= 1.
        batch_range: the total batch; or (smallest, largest), where the smallest is the base batch.
        max_batches: for each of the n nodes, the samples that fit into its memory, None: no limit.
            None: no node has a limit.
        baseline: None: Cannikin. "even": an even split, as with DDP. "lb-bsp": 5 samples per epoch
            move from the slowest node to the fastest. "adaptdl": an even split of the total batch
            with the largest goodput.

    Raises:
        ValueError: a value is out of its range, or `batch_range` is a range and the baseline takes
            one total batch.
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
