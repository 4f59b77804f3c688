"""Whether a training should average gradients of all ranks, or models in groups. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np

from wagma.collectives.topology import default_group_size
from wagma.theory.checks import Floats

LEAST_STEPS = 16  # measured on all ranks
KEPT = 1 / 3  # share of the gain for a switch that has to remain afterwards
LONGEST = 16  # most review periods from one simulation to the next

Row = Sequence[Sequence[float]]  # of each step of a rank version, then `StepTimes.steps`


def most_gained(rows: Sequence[Row]) -> float | None:
    """Return the share of throughput that WAGMA gains at most over the measured AllreduceSGD.

    With WAGMA, too, a version takes as long as the slowest rank computes on average; at most all
    waiting and communication go. None: too few steps were measured. Equal rows give equal numbers
    on all machines: sums are of integers.
    """
    if min(map(len, rows)) < LEAST_STEPS:
        return None
    steps = sum(map(len, rows))
    took = sum(int(sum(parts)) for row in rows for _, *parts in row) / steps
    least = max(int(sum(compute for _, compute, *_ in row)) / len(row) for row in rows)
    return took / max(least, 1.0) - 1


@dataclass
class ReviewPace:
    """When a simulation may find a gain: seldom while nothing changes. The same on all ranks.

    Attributes:
        period: versions between two reviews.
        due: version from which on a simulation is due.
        pause: versions between the latest two.
        seen: `most_gained` at the latest.
    """

    period: int
    due: int = 0
    pause: int = 0
    seen: float = 0.0

    def simulates(self, version: int, most: float, gain: float) -> bool:
        """Return whether to simulate at a review at which `gain` is sought and `most` possible."""
        changed = most >= self.seen + KEPT * gain
        if most < gain or (version < self.due and not changed):
            return False
        self.pause = min(2 * (self.period if changed else self.pause), LONGEST * self.period)
        self.due, self.seen = version + self.pause, most
        return True


@dataclass(frozen=True, eq=False)
class MeasuredSteps:
    """What the ranks measured in the same steps.

    Attributes:
        compute: seconds that each rank computed, float64: (P, n).
        communication: seconds of an averaging, without waiting.
        seconds: of a step, waiting included: the mean over ranks and steps.
        model_bytes: bytes of the parameters.
    """

    compute: Floats
    communication: float
    seconds: float
    model_bytes: int

    @classmethod
    def common(cls, rows: Sequence[Row], model_bytes: int) -> MeasuredSteps | None:
        """Return the steps that all ranks measured; None: they are too few."""
        tables = [{version: parts for version, *parts in row} for row in rows]
        versions = sorted(set.intersection(*map(set, tables)))
        if len(versions) < LEAST_STEPS:
            return None
        times = 1e-6 * np.array([[table[version] for version in versions] for table in tables])
        # A rank that computes for no measurable time still arrives some time.
        compute = np.maximum(times[:, :, 0], 1e-6)
        seconds = float(times.sum(axis=2).mean())
        return cls(compute, float(np.median(times[:, :, 2])), seconds, model_bytes)


@dataclass(frozen=True)
class Choice:
    """What to train with from some version on.

    Attributes:
        group_size: of WAGMA; None: AllreduceSGD.
        gain: throughput by that of AllreduceSGD, less 1, as predicted for WAGMA before a switch and
            measured with it.
        seconds: of a step of AllreduceSGD, as measured before the switch to WAGMA, by the mean
            compute time then; 0: not measured.
    """

    group_size: int | None = None
    gain: float = 0.0
    seconds: float = 0.0


def group_sizes(size: int) -> list[int]:
    """Return the sizes of WAGMA's groups to choose from, for `size` ranks; none for one rank."""
    return sorted({2, default_group_size(size), size}) if size > 1 else []


def preload() -> None:
    """Import what `choose` needs."""
    import_module("wagma.simulate.fitting")


def choose(now: Choice, measured: MeasuredSteps, sync_period: int, gain: float) -> Choice:
    """Return what to train with after a review.

    From AllreduceSGD to WAGMA if WAGMA's predicted throughput is higher by `gain`. Back if the
    throughput measured since is not higher by a third of that: than predicted for AllreduceSGD with
    today's compute times, or than it was measured before the switch, in proportion to the compute
    times.

    Args:
        now: what was trained with.
        measured: with it.
        sync_period: of WAGMA.
        gain: the share of throughput that is worth a switch, > 0.
    """
    from wagma.simulate import NETWORKS, Workload, method, simulate
    from wagma.simulate.fitting import fitted

    workload = Workload(measured.compute, None, measured.model_bytes)
    averages = {measured.model_bytes: (1, measured.communication)}
    network = fitted(NETWORKS["node"], workload.ranks, averages)
    synchronous = simulate(method("allreduce"), workload, network).throughput
    mean = float(measured.compute.mean())
    if now.group_size is None:
        best = Choice(gain=-1.0)
        for group_size in group_sizes(workload.ranks):
            averaging = method("wagma", group_size=group_size, sync_period=sync_period)
            predicted = simulate(averaging, workload, network, consensus=False).throughput
            if (won := predicted / synchronous - 1) > best.gain:
                best = Choice(group_size, won, measured.seconds / mean)
        return best if best.gain >= gain else replace(best, group_size=None)
    throughput = workload.ranks / measured.seconds
    won = throughput / synchronous - 1
    if now.seconds > 0:
        won = min(won, now.seconds * mean / measured.seconds - 1)
    return replace(now, gain=won, group_size=now.group_size if won >= KEPT * gain else None)
