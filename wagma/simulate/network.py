"""Time of communication by LogGP: latency L, overhead o, gap g, and G seconds per byte. Pure.

The model is that of Alexandrov et al., "LogGP: Incorporating Long Messages into the LogP Model"
(1995): a message of k bytes takes L + 2 o + k G, and a rank sends one message every g seconds. The
algorithms are those of wagma's schedules (docs/schedules.md), and the ring of NCCL and gloo.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import SupportsIndex

from wagma.inject.checks import check_count
from wagma.theory.checks import check_time

_SIGNAL = 64  # bytes of a message without data, such as an activation


@dataclass(frozen=True)
class Network:
    """Numbers of a network; all zeros: communication takes no time.

    Attributes:
        latency: L, seconds until a message's first byte is there, >= 0.
        overhead: o, seconds for which a rank is busy with a message it sends or gets, >= 0.
        gap: g, seconds between two messages that a rank sends, >= 0.
        gap_per_byte: G, seconds per byte of a message, >= 0: 1 / bandwidth of a node's link.
        reduce_per_byte: seconds in which a rank adds a byte of one array to another, >= 0.
        ranks_per_node: ranks that share a node's link, >= 1.
        intra: network of the ranks of a node, through which arrays of all ranks are summed up
            first; None: the algorithms are flat.

    Raises:
        ValueError: a number is negative or not finite.
        TypeError: a value is of a wrong type.
    """

    latency: float
    overhead: float
    gap: float
    gap_per_byte: float
    reduce_per_byte: float = 0.0
    ranks_per_node: int = 1
    intra: "Network | None" = None

    def __post_init__(self) -> None:
        for field in fields(self)[:5]:
            object.__setattr__(self, field.name, check_time(field.name, getattr(self, field.name)))
        check_count("ranks_per_node", self.ranks_per_node, 1)
        if not isinstance(self.intra, Network | None):
            raise TypeError(f"intra is {self.intra!r}: a Network, or None, is needed")

    def message(self, size: float) -> float:
        """Return the seconds of a message of `size` bytes: L + 2 o + size G."""
        return self.latency + 2 * self.overhead + size * self.gap_per_byte

    def exchange(self, size: float, neighbors: int) -> float:
        """Return the seconds in which a rank gets an array of each of its neighbours."""
        if neighbors == 0:
            return 0.0
        first = self.message(0) + (neighbors - 1) * max(self.gap, self.overhead)
        return first + neighbors * size * (self.gap_per_byte + self.reduce_per_byte)

    def doubling(self, size: float, ranks: int) -> float:
        """Return the seconds of an allreduce by recursive doubling: all elements in each phase."""
        phases = math.floor(math.log2(ranks)) + (2 if ranks & (ranks - 1) else 0)
        return phases * (self.message(size) + size * self.reduce_per_byte)

    def halving(self, size: float, ranks: int) -> float:
        """Return the seconds of an allreduce by recursive halving and doubling."""
        phases = math.floor(math.log2(ranks)) + (1 if ranks & (ranks - 1) else 0)
        return 2 * phases * self.message(0) + self._parts(size, ranks)

    def direct(self, size: float, ranks: int) -> float:
        """Return the seconds of an allreduce in which each rank sums up one part from all."""
        others = (ranks - 2) * max(self.gap, self.overhead)
        return 2 * (self.message(0) + others) + self._parts(size, ranks)

    def ring(self, size: float, ranks: int) -> float:
        """Return the seconds of an allreduce around a ring: 2 (ranks - 1) messages of a part."""
        return 2 * (ranks - 1) * self.message(0) + self._parts(size, ranks)

    def _parts(self, size: float, ranks: int) -> float:
        share = size * (ranks - 1) / ranks
        return share * (2 * self.gap_per_byte + self.reduce_per_byte)

    def flat(self, size: float, ranks: int) -> float:
        """Return the seconds of wagma's fastest allreduce of `ranks` ranks, with no hierarchy."""
        if ranks == 1:
            return 0.0
        ways: tuple[Callable[[float, int], float], ...] = (self.doubling, self.halving, self.direct)
        return min(way(size, ranks) for way in ways)

    def allreduce(self, size: float, ranks: SupportsIndex) -> float:
        """Return the seconds of an allreduce of `size` bytes by all `ranks` ranks.

        With `intra` the ranks of a node sum up in it, one rank per node exchanges the sum with the
        other nodes, and hands it on. Without, the ranks of a node share its link.
        """
        count = check_count("ranks", ranks, 1)
        if self.intra is None or count <= 1:
            return self._shared(min(self.ranks_per_node, count)).flat(size, count)
        here = min(self.ranks_per_node, count)
        within = self.intra.allreduce(size, here)
        nodes = -(-count // here)
        if nodes == 1:
            return within
        return within + self.flat(size, nodes) + self.intra.message(size)

    def group(self, size: float, members: int, ranks: int) -> float:
        """Return the seconds of an allreduce in a group; groups of all ranks are at work at once.

        The members of dynamic groups are mostly on different nodes.
        """
        if members == ranks or ranks <= self.ranks_per_node:
            return (
                self.allreduce(size, members)
                if members == ranks or self.intra is None
                else self.intra.allreduce(size, members)
            )
        return self._shared(self.ranks_per_node).flat(size, members)

    def activation(self, members: int) -> float:
        """Return the seconds until all members know that a version begins: a binomial tree."""
        return math.ceil(math.log2(members)) * self.message(_SIGNAL) if members > 1 else 0.0

    def _shared(self, ranks: int) -> "Network":
        if ranks == 1:
            return self
        return replace(self, gap_per_byte=self.gap_per_byte * ranks, ranks_per_node=1, intra=None)


FREE = Network(0.0, 0.0, 0.0, 0.0)

# Nominal numbers of such networks, not measured: shared memory; 25 Gbit/s with TCP; 200 Gbit/s.
NETWORKS = {
    "node": Network(3e-7, 2e-7, 2e-7, 1e-10, 5e-11),
    "ethernet": Network(2e-5, 3e-6, 3e-6, 3.6e-10, 5e-11),
    "infiniband": Network(1e-6, 3e-7, 3e-7, 4.4e-11, 5e-11),
    "slingshot": Network(1.7e-6, 4e-7, 4e-7, 4.4e-11, 5e-11),
}
