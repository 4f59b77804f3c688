"""The network of a profile: nominal numbers, scaled to what its collectives took. Pure."""

from collections import Counter
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from wagma.profile import TrainingProfile
from wagma.simulate import NETWORKS, Network
from wagma.simulate.network import FREE

# Methods whose collectives are averages of all ranks.
_OF_ALL = (None, "AllreduceSGD", "DistributedDataParallel", "LocalSGD")


def ranks_per_node(profile: TrainingProfile) -> int:
    """Return how many ranks the host with most of them has."""
    return max(Counter(profile.hosts).values())


def network_of(profile: TrainingProfile, name: str | None = None) -> tuple[Network, str]:
    """Return a network with which averages take as long as in the profile, and whence it is.

    Latencies and seconds per byte are scaled, each by one factor, by least squares.

    Args:
        profile: of a training.
        name: of the nominal network; None: "node" if all ranks are on one host, "ethernet" if not.
    """
    each = ranks_per_node(profile)
    if name is None:
        name = "node" if each == profile.ranks else "ethernet"
    nominal = replace(
        NETWORKS[name], ranks_per_node=each, intra=NETWORKS["node"] if each > 1 else None
    )
    sizes = [size for size, (count, _) in profile.communication_sizes.items() if size and count]
    if profile.ranks == 1:
        return FREE, "one rank"
    if profile.method not in _OF_ALL or not sizes:
        return nominal, f"nominal numbers of {name}"
    calls = np.array([profile.communication_sizes[size] for size in sizes], np.float64)
    start = nominal.allreduce(0, profile.ranks)
    rest = np.array([nominal.allreduce(size, profile.ranks) for size in sizes]) - start
    # Each size weighs as much as its calls took, relative to its time.
    seconds = calls[:, 1] / calls[:, 0]
    weights = np.sqrt(calls[:, 0]) / np.maximum(seconds, 1e-9)
    table = np.column_stack([np.full(len(sizes), start), rest]) * weights[:, np.newaxis]
    (latency, slope), _ = nnls(table, seconds * weights)
    return _scaled(nominal, latency, slope), f"measured, on the pattern of {name}"


def _scaled(network: Network, latency: float, slope: float) -> Network:
    intra = network.intra
    return replace(
        network,
        latency=network.latency * latency,
        overhead=network.overhead * latency,
        gap=network.gap * latency,
        gap_per_byte=network.gap_per_byte * slope,
        reduce_per_byte=network.reduce_per_byte * slope,
        intra=None if intra is None else _scaled(intra, latency, slope),
    )
