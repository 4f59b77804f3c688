"""Updates that every rank gets in order, made when a quorum of ranks has arrived. Pure, vectorised.

A rank that arrives at a version that began without it is late: it gets the results that it missed,
and goes on with the newest version. "carry": its gradient counts with the next one that is
in time; "skip": it is lost; "keep":
the rank offers it again, and computes no other before it is taken.

A rank that is still busy when a version is pinned cannot change when that happened. So all ranks
are simulated together, version by version.
"""

import numpy as np

from wagma.collectives.topology import starter_of
from wagma.simulate.activation import hops
from wagma.simulate.costs import Costs
from wagma.simulate.grace import Grace
from wagma.simulate.methods import Method
from wagma.simulate.tally import Tally
from wagma.theory.checks import Floats


def play(
    method: Method, compute: Floats, costs: Costs, seed: int, parts: Floats | None = None
) -> Tally:
    """Simulate.

    Args:
        method: of the kind "ordered".
        compute: seconds, (versions, P).
        costs: of the communication.
        seed: of the handles, from which "majority" draws.
        parts: seconds of micro-batches, (versions, P, M), between which a rank stops whose gradient
            would be dropped; None: it computes to the end.
    """
    return _Ordered(method, compute, costs, seed, parts).play()


class _Ordered:
    def __init__(
        self, method: Method, compute: Floats, costs: Costs, seed: int, parts: Floats | None = None
    ) -> None:
        self.method, self.compute, self.costs = method, compute, costs
        self.parts = parts if method.late == "skip" else None
        self.versions, self.size = compute.shape
        self.window = method.default_window(self.size)
        self.grace = Grace(method.grace, self.size)
        self.every = np.arange(self.size)
        self.seed = seed
        # When a rank calls the version `calling`, after which it begins the newest one.
        self.free = np.zeros(self.size)
        self.calling = np.full(self.size, -1)
        self.called = np.full(self.size, -1)  # the version that it called before
        self.done = 0.0  # when the newest result is there
        self.taken = 0  # fresh contributions
        self.tally = Tally(self.size)

    def play(self) -> Tally:
        tally = self.tally
        if self.method.late == "keep":
            self._keep()
        else:
            self._recompute()
        tally.seconds = max(self.done, float(self.free.max()))
        tally.calls = tally.late + self.taken
        tally.averages = self.versions
        return tally

    def _recompute(self) -> None:
        """Simulate the rules with which a late rank computes a new gradient."""
        tally, carries = self.tally, self.method.late == "carry"
        carried, origins, most = np.zeros((3, self.size))
        for version in range(self.versions):
            begins = np.maximum(self.free, self.done)
            ready = begins + self.compute[version]
            recent = self.calling >= version - self.window
            arrivals = self._held(version, ready, np.where(recent, self.free, ready))
            self.grace.computed(self.every, self.compute[version])
            pin, heard = self._pinned(version, arrivals, begins)
            fresh, begun = arrivals <= heard, begins <= heard
            late = begun & ~fresh
            self.done = pin + self.costs.world
            given_up = arrivals
            if self.parts is not None:
                given_up = np.minimum(arrivals, stopped(begins, self.parts[version], heard))
            self.free = np.where(fresh, self.done, np.where(begun, given_up, self.free))
            self.called = np.where(fresh, version, np.where(begun, self.calling, self.called))
            self.calling[begun] = version
            taken = int(np.count_nonzero(fresh))
            missed = int(np.count_nonzero(late))
            tally.waited[fresh] += np.maximum(pin - ready[fresh], 0.0)
            tally.late += missed
            self.taken += taken
            tally.averaged += taken
            tally.computed += taken + missed
            tally.gradients += taken + (missed if carries else 0)
            if carries:
                tally.averaged += float(carried[fresh].sum())
                tally.ages += float((carried * version - origins)[fresh].sum())
                most[fresh] = np.maximum(most, carried)[fresh]
                carried[fresh] = origins[fresh] = 0.0
                carried[late] += 1
                origins[late] += version
        # At the end a rank carries as much as before it was in time; more of it is never used.
        tally.gradients -= float(np.maximum(carried - most, 0.0).sum())

    def _keep(self) -> None:
        """Simulate the rule with which a late rank offers its gradient again."""
        tally = self.tally
        self.free, self.calling = self.compute[0].copy(), np.zeros(self.size, np.int64)
        for version in range(self.versions):
            ready = np.maximum(self.free, self.done)
            arrivals = self._held(version, ready, self.free)
            pin, heard = self._pinned(version, arrivals, np.zeros(self.size))
            fresh = arrivals <= heard
            ages = version - self.calling[fresh]
            self.done = pin + self.costs.world
            tally.waited[fresh] += np.maximum(pin - self.free[fresh], 0.0)
            tally.late += int(np.count_nonzero(ages))
            tally.ages += float(ages.sum())
            self.taken += len(ages)
            tally.averaged += len(ages)
            tally.gradients += len(ages)
            tally.computed += len(ages)
            coming = self.compute[min(version + 1, self.versions - 1)]
            self.free = np.where(fresh, self.done + coming, self.free)
            self.calling[fresh] = version + 1
            self.called[fresh] = version
        # What is not taken at the end is not waited for, but what is begun is computed to the end.
        self.free = np.where(fresh, self.done, np.maximum(self.free, self.done))

    def _held(self, version: int, ready: Floats, released: Floats) -> Floats:
        """Return the arrivals, held back until no rank is more than `window` versions behind."""
        behind = self.called < version - self.window
        return np.maximum(ready, released[behind].max()) if behind.any() else ready

    def _pinned(self, version: int, arrivals: Floats, begins: Floats) -> tuple[float, Floats]:
        """Return when a version is pinned, and when each rank hears of it."""
        if self.method.quorum == "majority":
            starter = starter_of(range(self.size), version, seed=self.seed)
        else:
            quorum = min(int(self.method.quorum), self.size)
            starter = int(np.argpartition(arrivals, quorum - 1)[quorum - 1])
        there = float(arrivals[starter])
        [away] = hops(np.array([starter]), np.array([self.size]), self.size) * self.costs.signal
        if self.grace.fixed == 0:
            return there, there + away
        # Ranks whose newest contribution is of the version before are awaited.
        awaited = (self.calling >= version - 1) & (begins <= there)
        last = max(there, float(arrivals[awaited].max(initial=there)))
        pin = min(there + float(self.grace.of(np.array([starter]))[0]), last)
        taking = np.flatnonzero(arrivals <= pin)
        self.grace.arrived(taking, np.full(len(taking), last - float(arrivals.min())))
        return pin, pin + away


def stopped(begins: Floats, parts: Floats, since: Floats | float) -> Floats:
    """Return when each rank ends the first micro-batch that ends at `since` or later, (P,).

    Args:
        begins: when each rank began, (P,).
        parts: seconds of its micro-batches, (P, M).
        since: a time, or one for each rank; a rank that has ended before it: math.inf.
    """
    ends = begins[:, np.newaxis] + parts.cumsum(axis=1)
    limits = np.broadcast_to(since, begins.shape)[:, np.newaxis]
    found: Floats = np.where(ends >= limits, ends, np.inf).min(axis=1)
    return found
