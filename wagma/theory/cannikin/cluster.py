"""Times of nodes and of a cluster: the performance model of Sec. 3.2. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.theory.cannikin.arguments import check_vector
from wagma.theory.checks import Floats, check_share, check_time


@dataclass(frozen=True)
class NodeModel:
    """Compute times of a node for a local batch of b samples: (3).

    Before backward a node takes a = q b + s, and for backward P = k b + m, in seconds.

    Attributes:
        q: seconds per sample of loading data and forward, >= 0.
        s: seconds per batch of the same and of the update, >= 0.
        k: seconds per sample of backward, > 0.
        m: seconds per batch of backward, >= 0.
        max_batch: samples that fit into its memory, >= 1; None: no limit.
        min_batch: smallest number of samples, 0 to max_batch.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is no number, or a number of samples is no integer.
    """

    q: float
    s: float
    k: float
    m: float
    max_batch: int | None = None
    min_batch: int = 0

    def __post_init__(self) -> None:
        for name in ("q", "s", "k", "m"):
            value = check_time(name, getattr(self, name), positive=name == "k")
            object.__setattr__(self, name, value)
        if self.max_batch is not None:
            object.__setattr__(self, "max_batch", check_count("max_batch", self.max_batch, 1))
        least = check_count("min_batch", self.min_batch, 0, self.max_batch)
        object.__setattr__(self, "min_batch", least)


class Lines(NamedTuple):
    """All nodes as arrays (n,): for each bottleneck the time is a line, slope b + constant.

    A node's batch takes max(compute_slope b + compute, sync_slope b + sync).
    """

    compute_slope: Floats
    compute: Floats
    sync_slope: Floats
    sync: Floats
    least: Floats
    most: Floats  # math.inf: no limit

    def times(self, batches: Floats) -> Floats:
        """Return the time that each node needs for its batch: (..., n)."""
        return np.maximum(
            self.compute_slope * batches + self.compute, self.sync_slope * batches + self.sync
        )


@dataclass(frozen=True)
class ClusterModel:
    """Nodes that average gradients in buckets, the first of which are sent during backward.

    Attributes:
        nodes: n >= 1 of them, a tuple.
        gamma: share of a backward pass after which the first bucket is ready, 0 to 1.
        overlap_time: T_o, seconds in which all buckets but the last are averaged, >= 0.
        last_bucket_time: T_u, seconds in which the last bucket is averaged, >= 0.

    Raises:
        ValueError: a value is out of its range, or there is no node.
        TypeError: a value is of a wrong type.
    """

    nodes: tuple[NodeModel, ...]
    gamma: float
    overlap_time: float
    last_bucket_time: float

    def __post_init__(self) -> None:
        nodes = tuple(self.nodes)
        if not nodes:
            raise ValueError("nodes is empty: a cluster has at least one node")
        for index, node in enumerate(nodes):
            if not isinstance(node, NodeModel):
                raise TypeError(f"nodes[{index}] is {node!r}: a NodeModel is needed")
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "gamma", check_share("gamma", self.gamma))
        for name in ("overlap_time", "last_bucket_time"):
            object.__setattr__(self, name, check_time(name, getattr(self, name)))

    @cached_property
    def lines(self) -> Lines:
        """Return the times of all nodes as arrays."""
        rows = [
            (n.q, n.s, n.k, n.m, n.min_batch, np.inf if n.max_batch is None else n.max_batch)
            for n in self.nodes
        ]
        q, s, k, m, least, most = np.array(rows, np.float64).T.copy()
        last, gamma = self.last_bucket_time, self.gamma
        return Lines(
            compute_slope=q + k,
            compute=s + m + last,
            sync_slope=q + gamma * k,
            sync=s + gamma * m + (self.overlap_time + last),
            least=least,
            most=most,
        )

    def bottlenecks(self, batches: Floats) -> tuple[str, ...]:
        """Return each node's bottleneck at these batches: "compute" or "communication"."""
        lines = self.lines
        compute = lines.compute_slope * batches + lines.compute
        sync = lines.sync_slope * batches + lines.sync
        return tuple(np.where(compute >= sync, "compute", "communication").tolist())


def batch_time(cluster: ClusterModel, batches: npt.ArrayLike) -> float:
    """Return the time of a step with these local batches: (7).

    T = max(max_i(a_i + P_i + T_u), max_i(a_i + gamma P_i + T_o + T_u)). A node with a batch of 0
    takes part with its s_i and m_i. The nodes' limits are not checked.

    Args:
        cluster: the model.
        batches: b_i, samples, >= 0: (n,).

    Returns:
        Seconds.

    Raises:
        ValueError: the shape or a number is wrong.
        TypeError: something is no number.
    """
    return float(cluster.lines.times(check_vector("batches", batches, len(cluster.nodes))).max())
