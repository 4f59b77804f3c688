"""Steps that end at a threshold, and batches of unequal sizes: what ranks then compute. Pure."""

import math
from dataclasses import dataclass

import numpy as np

from wagma.simulate.methods import Method
from wagma.simulate.workload import Workload
from wagma.theory.cannikin import ClusterModel, NodeModel, opt_perf
from wagma.theory.checks import Floats
from wagma.theory.dropcompute import choose_threshold
from wagma.units import plural


@dataclass(frozen=True, eq=False)
class Planned:
    """What the ranks compute.

    Attributes:
        compute: seconds, (versions, P).
        counted: local batches that count, in all; `planned`: with those that were dropped.
    """

    compute: Floats
    counted: float
    planned: float


def plan(method: Method, workload: Workload, communication: float) -> Planned:
    """Return what the ranks compute with a method.

    Args:
        method: what averages.
        workload: what they would compute without.
        communication: seconds of an average.

    Raises:
        ValueError: the workload has not what the method needs.
    """
    if method.stop is not None:
        return _stopped(method, workload, communication)
    if method.uneven:
        return _uneven(method, workload, communication)
    every = float(workload.ranks * workload.versions)
    return Planned(np.ascontiguousarray(workload.compute.T), every, every)


def _stopped(method: Method, workload: Workload, communication: float) -> Planned:
    """Drop what comes after the threshold, after the steps from which it is chosen."""
    times, period = _units(method, workload), method.stop_period
    if method.stop == "threshold":
        return _anytime(method, times)
    ranks, periods, _ = times.shape
    preempt = method.stop == "preempt"
    first = method.calibration_steps
    if isinstance(method.threshold, str):
        if periods <= first:
            raise ValueError(
                f"the workload has {plural(workload.versions, 'version')}: {method.name} measures "
                f"{first * period} before it drops anything; give more, or a threshold"
            )
        measured = times[:, :first].transpose(1, 0, 2)
        tau = choose_threshold(measured, np.full(first, communication), preempt=preempt).threshold
    else:
        tau, first = method.threshold, 0
    ends = times.cumsum(axis=2)
    kept = ends < tau if preempt else ends - times < tau
    kept[:, :first] = True
    taken = np.where(kept, times, 0.0)
    if preempt and tau < math.inf:
        # The micro-batch in progress is given up at the threshold.
        cut = (~kept & (ends - times < tau)).astype(np.float64)
        taken += cut * (tau - (ends - times))
    steps = taken.reshape(ranks, periods, period, -1).sum(axis=3).reshape(ranks, -1)
    every = float(ranks * periods * period)
    return Planned(np.ascontiguousarray(steps.T), float(kept.mean()) * every, every)


def _units(method: Method, workload: Workload) -> Floats:
    """Return the seconds of what is stopped between, (P, periods, n): parts of a step or steps."""
    period, parts = method.stop_period, workload.micro_batches
    if period > 1:
        whole = workload.versions // period * period
        if whole == 0:
            raise ValueError(
                f"the workload has {plural(workload.versions, 'version')}: {method.name} has "
                f"periods of {period}; give as many or more"
            )
        return workload.compute[:, :whole].reshape(workload.ranks, -1, period)
    if parts is None or parts.shape[2] < 2:
        count = "unknown" if parts is None else str(parts.shape[2])
        raise ValueError(
            f"micro_batches are {count}: {method.name} stops between the micro-batches of a step; "
            "give a workload with 2 or more of them"
        )
    return parts


def _anytime(method: Method, times: Floats) -> Planned:
    """Let each step end with the first micro-batch that is finished after the threshold.

    Ranks that need more than their M micro-batches take the next ones of their times.
    """
    ranks, versions, count = times.shape
    given = method.threshold
    tau = float(times.sum(axis=2).mean()) if isinstance(given, str) else given
    ends = np.concatenate([np.zeros((ranks, 1)), times.reshape(ranks, -1).cumsum(axis=1)], axis=1)
    steps = np.empty((versions, ranks))
    finished = 0
    for rank in range(ranks):
        own, place = ends[rank], 0
        for version in range(versions):
            last = int(np.searchsorted(own, own[place] + tau))
            if last >= len(own):
                place, last = 0, int(np.searchsorted(own, tau))
            last = min(max(last, place + 1), len(own) - 1)
            steps[version, rank] = own[last] - own[place]
            finished += last - place
            place = last if last < len(own) - 1 else 0
    return Planned(steps, finished / count, finished / count)


def _uneven(method: Method, workload: Workload, communication: float) -> Planned:
    """Give each rank a batch, of the same sum, with which all take equally long (OptPerf)."""
    first = min(method.calibration_steps, workload.versions)
    means = workload.compute[:, :first].mean(axis=1)
    # Forward takes a third of the time of a sample; no time is independent of the batch.
    floor = float(means[means > 0].min(initial=1.0)) * 1e-3
    nodes = tuple(NodeModel(t / 3, 0.0, 2 * t / 3, 0.0) for t in np.maximum(means, floor).tolist())
    cluster = ClusterModel(nodes, 1.0, 0.0, communication)
    shares = np.asarray(opt_perf(cluster, float(workload.ranks)).batches, np.float64)
    scaled = workload.compute * shares[:, np.newaxis]
    scaled[:, :first] = workload.compute[:, :first]
    every = float(workload.ranks * workload.versions)
    return Planned(np.ascontiguousarray(scaled.T), every, every)
