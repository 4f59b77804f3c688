"""The network of a profile: nominal numbers, scaled to what its collectives took. Pure."""

from collections import Counter
from dataclasses import replace

from wagma.profile import TrainingProfile
from wagma.simulate import NETWORKS, Network
from wagma.simulate.fitting import fitted
from wagma.simulate.network import FREE

# Methods whose collectives are averages of all ranks.
_OF_ALL = (None, "AllreduceSGD", "DistributedDataParallel", "LocalSGD")


def ranks_per_node(profile: TrainingProfile) -> int:
    """Return how many ranks the host with most of them has."""
    return max(Counter(profile.hosts).values())


def network_of(profile: TrainingProfile, name: str | None = None) -> tuple[Network, str]:
    """Return a network with which averages take as long as in the profile, and whence it is.

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
    calls = {size: call for size, call in profile.communication_sizes.items() if size and call[0]}
    if profile.ranks == 1:
        return FREE, "one rank"
    if profile.method not in _OF_ALL or not calls:
        return nominal, f"nominal numbers of {name}"
    if each == profile.ranks and name != "node":  # of which nothing was measured
        here = fitted(NETWORKS["node"], profile.ranks, calls)
        return replace(nominal, intra=here), f"measured on a node, nominal numbers of {name}"
    return fitted(nominal, profile.ranks, calls), f"measured, on the pattern of {name}"
