"""Seconds of the communication of a method on a network. Pure."""

import math
from dataclasses import dataclass

from wagma.collectives.topology import default_group_size
from wagma.simulate.methods import Method
from wagma.simulate.network import Network
from wagma.simulate.workload import Workload

# Share of a step's computing in which gradients become known: a backward pass takes about twice as
# long as a forward pass.
_BACKWARD = 2 / 3


@dataclass(frozen=True)
class Costs:
    """Seconds from the moment at which nobody is waited for until a call returns.

    Attributes:
        world: an average of all ranks.
        group: an average of a group.
        late: what a late rank does with a result.
        signal: a message that a version begins.
        group_size: most members of a group.
    """

    world: float
    group: float
    late: float
    signal: float
    group_size: int

    @classmethod
    def of(cls, method: Method, workload: Workload, network: Network) -> "Costs":
        """Return the costs of a method."""
        ranks, size = workload.ranks, workload.model_bytes
        members = _members(method, ranks)
        activation = network.activation(members)
        return cls(
            world=_world(method, workload, network),
            group=activation + network.group(size, members, ranks) if members > 1 else 0.0,
            late=size * network.reduce_per_byte,
            signal=network.activation(2),
            group_size=members,
        )


def _members(method: Method, ranks: int) -> int:
    if method.group_size is None:
        return default_group_size(ranks)
    return int(min(method.group_size, ranks))


def _world(method: Method, workload: Workload, network: Network) -> float:
    ranks, size = workload.ranks, workload.bytes_at_sync
    way = network.ring if method.algorithm == "ring" and ranks > 1 else network.allreduce
    if method.bucket_bytes is None or size <= method.bucket_bytes:
        return way(size, ranks)
    count = math.ceil(size / method.bucket_bytes)
    one = way(size / count, ranks)
    hidden = _BACKWARD * float(workload.compute.mean())
    return max(one, count * one - hidden)
