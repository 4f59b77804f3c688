"""Models of the clusters on which Cannikin was measured: Tables 2 and 3, and Sec. 6. Pure.

The paper prints the nodes, and how much faster the fastest one was, but not their times. These are
chosen:

| number | value | from |
|---|---|---|
| time per sample, A | 1, 1.71, 3.16 | memory bandwidth: 768, 448, 243 GB/s (data sheets) |
| time per sample, B: A100, V100 | 1, 2.48 | Table 1: 77.97 and 31.4 TFLOPS |
| time per sample, B: RTX6000 | 3.42 | Sec. 6 |
| time per sample, C | 1 / share, shares evenly from 1 to 1/4 | Sec. 6 |
| CPU cores per GPU | A: 18, 10, 4; B: 20, 10, 24; C: 24 | Tables 2 and 3 (data sheets) |
| of it loading of data | 4 / cores of the fastest GPU's time | chosen: 0.17 to 1 of it |
| backward / forward, per sample and fixed | 2 | chosen: two products instead of one |
| s + m | 0.06 of the step, on every node | chosen: kernels are started by the host |
| gamma | 0.15 | chosen: the first of some seven buckets |
| T_u | 0.05 of the step | chosen: one of those buckets |
| T_o | 0.30 of the step | chosen: the other six; `overlap` changes it |

Loading belongs to a_i, and does not slow down with the GPU. Otherwise equal times would also be
equal times until the first bucket, and communication would not change the best batches. All shares
are relative to the step time for which a cluster is created.
"""

from __future__ import annotations

from typing import Literal, SupportsIndex, get_args

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.theory.cannikin.arguments import check_total, check_vector
from wagma.theory.cannikin.cluster import ClusterModel, NodeModel
from wagma.theory.checks import Floats, check_share, check_time

ClusterName = Literal["A", "B", "C"]

_FORWARD = 1 / 3  # of the GPU's time per sample, and of the fixed time
_LOADING = 4.0  # cores that load a sample in the time in which the fastest GPU computes one
_FIXED = 0.06
_GAMMA = 0.15
_LAST_BUCKET, _OVERLAP, _MOST_OVERLAP = 0.05, 0.30, 0.8


def shared_times(nodes: SupportsIndex = 16, least_share: float = 0.25) -> Floats:
    """Return relative times per sample of equal GPUs that others use, too: cluster C.

    Args:
        nodes: n, >= 1.
        least_share: what the last node has of its GPU, more than 0 to 1; the first one has all, and
            the shares of the others are evenly between.

    Returns:
        (n,), the first is 1.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is of a wrong type.
    """
    if check_share("least_share", least_share) == 0:
        raise ValueError("least_share is 0.0: a node needs a share of its GPU, more than 0")
    times: Floats = 1 / np.linspace(1, least_share, check_count("nodes", nodes, 1))
    return times


_SAMPLE_TIMES: dict[ClusterName, Floats] = {
    "A": 768 / np.array([768.0, 448.0, 243.0]),
    "B": np.repeat([1, 77.97 / 31.4, 3.42], [4, 4, 8]),
    "C": shared_times(),
}
_CORES: dict[ClusterName, Floats] = {
    "A": np.array([18.0, 10.0, 4.0]),
    "B": np.repeat([20.0, 10.0, 24.0], [4, 4, 8]),
    "C": np.full(16, 24.0),
}


def cluster(
    name: ClusterName,
    *,
    step_time: float = 1.0,
    batch: float = 512,
    nodes: SupportsIndex | None = None,
    overlap: float = _OVERLAP,
) -> ClusterModel:
    """Return a cluster of the paper, the fastest nodes first.

    Args:
        name: "A": an RTX A5000, an RTX A4000 and a Quadro P4000. "B": four A100, four V100 and
            eight RTX6000. "C": 16 equal GPUs that others use, too.
        step_time: of the best division of `batch`, in seconds, > 0.
        batch: total batch that takes so long, in samples, > 0.
        nodes: how many of them, see `subset`. None: all.
        overlap: T_o as a share of `step_time`, 0 to 0.8.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is of a wrong type.
    """
    if name not in get_args(ClusterName):
        raise ValueError(f"name is {name!r}: one of {', '.join(get_args(ClusterName))} is needed")
    times, cores = _SAMPLE_TIMES[name], _CORES[name]
    picked = _evenly(len(times), len(times) if nodes is None else nodes)
    return made_cluster(
        times[picked], cores[picked], step_time=step_time, batch=batch, overlap=overlap
    )


def made_cluster(
    sample_times: npt.ArrayLike,
    cores: npt.ArrayLike,
    *,
    step_time: float = 1.0,
    batch: float = 512,
    overlap: float = _OVERLAP,
) -> ClusterModel:
    """Return a cluster like those of the paper, of nodes that are so fast relative to each other.

    Args:
        sample_times: times per sample, > 0, relative to that of the paper's fastest GPU: (n,).
        cores: of the CPU that load a node's samples, > 0, so many that loading is not all of the
            time: (n,).
        step_time: of the best division of `batch`, in seconds, > 0.
        batch: total batch that takes so long, in samples, > 0.
        overlap: T_o as a share of `step_time`, 0 to 0.8.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is of a wrong type.
    """
    relative = check_vector("sample_times", sample_times, positive=True)
    loading = _LOADING / check_vector("cores", cores, len(relative), positive=True)
    if (slow := loading >= relative).any():
        node = int(slow.argmax())
        raise ValueError(
            f"cores[{node}] is too few to load a sample in sample_times[{node}]: more than "
            f"{_LOADING / float(relative[node]):g} are needed"
        )
    step = check_time("step_time", step_time, positive=True)
    if check_share("overlap", overlap) > _MOST_OVERLAP:
        raise ValueError(f"overlap is {overlap!r}: at most {_MOST_OVERLAP:g} is possible")
    q = loading + _FORWARD * (relative - loading)
    k = (1 - _FORWARD) * (relative - loading)
    s, m = _FORWARD * _FIXED * step, (1 - _FORWARD) * _FIXED * step
    # Samples that each node can compute within the step: the minimum over both bottlenecks. No
    # node's batch is 0, so all nodes are filled to the step's end, and the sum is the batch.
    before_last = step - _LAST_BUCKET * step - s
    by_compute = (before_last - m) / (q + k)
    by_sync = (before_last - _GAMMA * m - overlap * step) / (q + _GAMMA * k)
    unit = float(np.minimum(by_compute, by_sync).sum()) / check_total("batch", batch)
    return ClusterModel(
        tuple(
            NodeModel(before * unit, s, backward * unit, m)
            for before, backward in zip(q.tolist(), k.tolist(), strict=True)
        ),
        gamma=_GAMMA,
        overlap_time=overlap * step,
        last_bucket_time=_LAST_BUCKET * step,
    )


def subset(cluster: ClusterModel, nodes: SupportsIndex) -> ClusterModel:
    """Return a cluster of some of the nodes, with the same times.

    They are picked evenly: the first and the last are among them, of more than one.

    Args:
        cluster: n nodes.
        nodes: how many to pick, 1 to n.

    Raises:
        ValueError: `nodes` is out of its range.
        TypeError: `nodes` is no integer.
    """
    chosen = tuple(cluster.nodes[i] for i in _evenly(len(cluster.nodes), nodes))
    return ClusterModel(chosen, cluster.gamma, cluster.overlap_time, cluster.last_bucket_time)


def _evenly(count: int, nodes: SupportsIndex) -> list[int]:
    """Return which of `count` nodes are picked, ascending."""
    return [
        int(i) for i in np.linspace(0, count - 1, check_count("nodes", nodes, 1, count)).round()
    ]
