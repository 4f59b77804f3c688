"""Batches for the first epochs, in which the nodes' times are learned: Sec. 4.2. Pure."""

from __future__ import annotations

import math
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.theory.cannikin.arguments import check_vector
from wagma.theory.cannikin.cluster import ClusterModel, NodeModel
from wagma.theory.cannikin.optimum import check_feasible, fill, integer_batches
from wagma.theory.checks import Floats, Ints

# Relative difference between two batches of a node, so that errors of measured times do not
# determine the slope.
_APART = 0.25


def initial_batches(
    sample_times: npt.ArrayLike,
    total_batch: SupportsIndex,
    max_batches: npt.ArrayLike | None = None,
) -> Ints:
    """Return batches for nodes of which only the time per sample is known: (8).

    b_i = B (1/t_i) / sum_j (1/t_j), in integers of which none are faster. Where a limit is
    reached, the other nodes take the rest in the same proportions.

    Args:
        sample_times: t_i, seconds per sample, > 0: (n,).
        total_batch: B, samples, >= 1.
        max_batches: samples that fit into each node's memory, integers >= 1: (n,). None: no limits.

    Returns:
        int64 (n,), the sum is B. Some are 0 where B is small.

    Raises:
        ValueError: a value is out of its range, or B is above the sum of the limits.
        TypeError: a value is of a wrong type.
    """
    times = check_vector("sample_times", sample_times, positive=True)
    limits = _limits(max_batches, len(times))
    return integer_batches(_proportional(times, np.zeros(len(times)), limits), total_batch).batches


def distinct_batches(
    previous: npt.ArrayLike,
    sample_times: npt.ArrayLike,
    total_batch: SupportsIndex,
    max_batches: npt.ArrayLike | None = None,
) -> Ints:
    """Return `initial_batches`, but for each node at least a quarter more or less than before.

    Two different batches of each node give a model. (8) gives a node the same one again where it
    is as fast as the others on average, and gives all nodes the same where all are equally fast.
    Some of such nodes get more then, and others less, and none gets 0.

    Args:
        previous: the batches that the nodes have had, samples, >= 0: (n,).
        sample_times: t_i, seconds per sample, > 0: (n,).
        total_batch: B, samples, >= 1.
        max_batches: samples that fit into each node's memory, integers >= 1: (n,). None: no limits.

    Returns:
        int64 (n,), the sum is B.

    Raises:
        ValueError: a value is out of its range, or there are no such batches, as for one node:
            another total batch is needed then.
        TypeError: a value is of a wrong type.
    """
    times = check_vector("sample_times", sample_times, positive=True)
    before = check_vector("previous", previous, len(times))
    limits, total = _limits(max_batches, len(times)), check_count("total_batch", total_batch, 1)
    fastest = _proportional(times, np.zeros(len(times)), limits)
    check_feasible(fastest, total)
    wanted = fill(fastest, np.array([float(total)]))[0]
    more = np.maximum(np.ceil(before * (1 + _APART)), before + 1)
    less = np.minimum(np.floor(before * (1 - _APART)), before - 1)
    # Nodes that get more by (8) come first; nodes without a choice go to either end.
    ratios = np.divide(wanted, before, out=np.full(len(times), math.inf), where=before > 0)
    ratios[less < 1], ratios[more > limits] = math.inf, -math.inf
    order = np.argsort(-ratios.round(9), kind="stable")
    preferred = (np.sum(ratios > 1 + 1e-9) + np.sum(ratios >= 1 - 1e-9)) / 2
    for count in sorted(range(len(times) + 1), key=lambda count: abs(count - preferred)):
        above = np.zeros(len(times), bool)
        above[order[:count]] = True
        least, most = np.where(above, more, 1), np.where(above, limits, np.minimum(less, limits))
        if (least <= most).all() and least.sum() <= total <= most.sum():
            return integer_batches(_proportional(times, least, most), total).batches
    raise ValueError(
        f"total_batch is {total}: it can not be divided so that each of {len(times)} nodes has a "
        f"quarter more or less than in previous, {before.tolist()!r}; take another total"
    )


def _proportional(times: Floats, least: Floats, most: Floats) -> ClusterModel:
    """Return nodes without fixed times and communication: the best step equalises t_i b_i."""
    nodes = [
        NodeModel(0, 0, time, 0, None if math.isinf(high) else int(high), int(low))
        for time, low, high in zip(times.tolist(), least.tolist(), most.tolist(), strict=True)
    ]
    return ClusterModel(tuple(nodes), 1, 0, 0)


def _limits(max_batches: npt.ArrayLike | None, count: int) -> Floats:
    if max_batches is None:
        return np.full(count, math.inf)
    limits = check_vector("max_batches", max_batches, count, positive=True)
    if (wrong := limits != np.floor(limits)).any():
        node = int(wrong.argmax())
        raise ValueError(f"max_batches[{node}] is {float(limits[node])!r}: an integer is needed")
    return limits
