"""The best local batches for a total batch: OptPerf, exactly, in real numbers and integers. Pure.

The paper calls this a mixed-integer program. In real numbers it is a linear one: the time of a node
grows with its batch, so that all nodes are filled to one level of time, like water.

The results do not depend on the CPU, because no BLAS, whose order of sums depends on it, is used:
equal numbers give equal plans on all nodes.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.theory.cannikin.arguments import check_total
from wagma.theory.cannikin.cluster import ClusterModel, Lines, batch_time
from wagma.theory.checks import Floats, Ints

# A line that grows by this share of itself at most is taken for constant.
_FLAT = 1e-13


@dataclass(frozen=True, eq=False)
class OptPerf:
    """The best division of a total batch.

    Attributes:
        time: of a step, in seconds.
        batches: b_i of each node, float64, or int64 from `integer_batches`: (n,).
        bottlenecks: of each node, "compute" or "communication".
    """

    time: float
    batches: npt.NDArray[Any]
    bottlenecks: tuple[str, ...]


def opt_perf(cluster: ClusterModel, total_batch: float) -> OptPerf:
    """Return the fastest step with this total batch, in real numbers.

    It minimises (7) over min_batch_i <= b_i <= max_batch_i, sum b_i = B. Exact up to rounding,
    whatever the bottlenecks are; O(n log n) for n nodes.

    The time is unique. So are the batches, unless one node's fixed time or its min_batch alone
    takes that long: the others are then filled to one lower level.

    Args:
        cluster: the model.
        total_batch: B, samples, > 0.

    Raises:
        ValueError: B is below the sum of min_batch or above the sum of max_batch.
        TypeError: B is no number.
    """
    total = check_total("total_batch", total_batch)
    check_feasible(cluster, total)
    return planned(cluster, fill(cluster, np.array([total]))[0])


def integer_batches(cluster: ClusterModel, total_batch: SupportsIndex) -> OptPerf:
    """Return the fastest step with this total batch, in whole samples.

    The sum is exactly B, and no other integers within the limits are faster. Of equally fast ones
    these are close to `opt_perf`'s.

    Args:
        cluster: the model.
        total_batch: B, samples, >= 1.

    Raises:
        ValueError: B is below the sum of min_batch or above the sum of max_batch.
        TypeError: B is no integer.
    """
    total = check_count("total_batch", total_batch, 1)
    check_feasible(cluster, total)
    shares = fill(cluster, np.array([float(total)]))[0]
    return planned(cluster, rounded(cluster, shares, total))


def check_feasible(cluster: ClusterModel, total: float) -> None:
    """Raise ValueError where the nodes' limits do not allow for this total batch."""
    least, most = float(cluster.lines.least.sum()), float(cluster.lines.most.sum())
    if total < least:
        raise ValueError(
            f"total_batch is {total:g}: the nodes' min_batch add up to {least:g}; raise "
            "total_batch, or lower min_batch"
        )
    if total > most:
        raise ValueError(
            f"total_batch is {total:g}: the nodes' max_batch add up to {most:g}; lower "
            "total_batch, or add nodes"
        )


def fill(cluster: ClusterModel, totals: Floats) -> Floats:
    """Return batches that fill all nodes to one level of time, for each total batch: (C, n).

    At a level L node i takes b_i(L), the most whose time is at most L, within its limits. The sum
    grows with L, and is linear between the levels at which some node reaches a limit or changes
    its bottleneck: B lies between the sums of two successive ones of these.

    A node whose time does not grow with its batch at first (q = gamma = 0) jumps to some batch at a
    level. No step takes less than this level, because the node takes part with a batch of 0 too.
    So any part of the jump is as good, and it is treated like the others' linear growth.

    Args:
        cluster: the model.
        totals: total batches, feasible: (C,).
    """
    lines = cluster.lines
    # No node takes more than all.
    most = np.minimum(lines.most, np.maximum(lines.least, totals.max()))
    # A line may be so flat that a time says nothing about the batch, because of rounding.
    flat = lines.sync_slope * most <= _FLAT * lines.sync
    lines = lines._replace(most=most, sync_slope=np.where(flat, 0.0, lines.sync_slope))
    levels = _levels(lines)
    low = np.zeros(len(totals), np.int64)
    high = np.full(len(totals), len(levels) - 1)  # all nodes are full there
    while (low < high).any():
        middle = (low + high) // 2
        enough = _taken(lines, levels[middle]).sum(axis=1) >= totals
        low, high = (
            np.where(enough, low, np.minimum(middle + 1, high)),
            np.where(enough, middle, high),
        )
    # The sum reaches B at this level, or on the way from the one before.
    before = _taken(lines, levels[np.maximum(high - 1, 0)])
    start = np.where((high == 0)[:, None], lines.least, before)
    end = _taken(lines, levels[high])
    missing, grown = totals - start.sum(axis=1), (end - start).sum(axis=1)
    part = np.divide(missing, grown, out=np.zeros(len(totals)), where=grown > 0)
    batches: Floats = start + part.clip(0, 1)[:, None] * (end - start)
    return batches


def rounded(cluster: ClusterModel, shares: Floats, total: int) -> Ints:
    """Return the best integers for a total batch whose real optimum is given: int64 (n,).

    Let b0 be the optimum rounded down, not below min_batch. Some best integers b* are nowhere
    below b0: if b*_i < b0_i, some b*_j > b0_j, because the sum of b0 is at most B. A sample moved
    from j to i makes j no slower, and i no slower than b0_i, which takes at most the real optimum's
    time. So the rest has to be added to b0. Each sample added to node i costs the time of i with
    it, and costs of successive samples of a node do not fall: the cheapest ones can be taken, and
    no choice of as many has a smaller maximum.
    """
    lines = cluster.lines
    # Shares that are integers but for rounding errors may be above them: what is below is right.
    base = np.floor(shares - 1e-9 * np.maximum(1, shares))
    batches: list[int] = np.maximum(base, lines.least).astype(np.int64).tolist()
    slopes, constants, sync_slopes, syncs, _, most = (x.tolist() for x in lines)

    def cost(node: int) -> float:
        more = batches[node] + 1
        if more > most[node]:
            return math.inf
        seconds: float = max(
            slopes[node] * more + constants[node], sync_slopes[node] * more + syncs[node]
        )
        return seconds

    queue = [(cost(node), node) for node in range(len(batches))]
    heapq.heapify(queue)
    for _ in range(total - sum(batches)):
        node = queue[0][1]
        batches[node] += 1
        heapq.heapreplace(queue, (cost(node), node))
    return np.array(batches, np.int64)


def _levels(lines: Lines) -> Floats:
    """Return the times at which a node starts to take samples, changes or is full, ascending."""
    # The lines of a node cross where backward after the first bucket takes as long as T_o.
    steeper = lines.compute_slope - lines.sync_slope
    crossing = np.divide(
        lines.sync - lines.compute, steeper, out=np.zeros(len(steeper)), where=steeper > 0
    ).clip(lines.least, lines.most)
    return np.unique(np.concatenate([lines.times(b) for b in (lines.least, crossing, lines.most)]))


def _taken(lines: Lines, levels: Floats) -> Floats:
    """Return the most samples that each node takes within each level of time: (C, n)."""
    level, flat = levels[:, None], lines.sync_slope == 0
    sync = np.where(level >= lines.sync, np.inf, -np.inf)
    with np.errstate(over="ignore"):  # far more than all is as good as infinitely much
        taken = (level - lines.compute) / lines.compute_slope
        np.divide(level - lines.sync, lines.sync_slope, out=sync, where=~flat)
    return np.minimum(taken, sync).clip(lines.least, lines.most)


def planned(cluster: ClusterModel, batches: npt.NDArray[Any]) -> OptPerf:
    """Return these batches with what they take."""
    return OptPerf(batch_time(cluster, batches), batches, cluster.bottlenecks(batches))
