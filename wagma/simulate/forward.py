"""Groups whose late ranks jump over the versions that they missed: missed="fast-forward". Pure."""

import heapq
from dataclasses import dataclass, field

import numpy as np

from wagma.simulate.costs import Costs
from wagma.simulate.grace import Grace
from wagma.simulate.groups import members_of, synchronises
from wagma.simulate.methods import Method
from wagma.simulate.tally import Tally
from wagma.theory.checks import Floats

_Key = tuple[int, int]  # version, and number of the group in it


@dataclass
class _Open:
    """A group's version that is not pinned yet, or whose spread is not known."""

    first: float  # arrival
    present: list[int] = field(default_factory=list)
    awaited: set[int] = field(default_factory=set)  # members that are about to arrive


class Forward:
    """Events in order of time: arrivals of ranks, and ends of grace.

    Args:
        method: of the kind "groups", with quorum 1.
        compute: seconds, (versions, P).
        costs: of the communication.
        seed: of the draws.
    """

    def __init__(self, method: Method, compute: Floats, costs: Costs, seed: int) -> None:
        self.method, self.costs, self.seed = method, costs, seed
        self.compute: list[list[float]] = compute.tolist()
        self.versions, self.size = compute.shape
        self.window = method.default_window(self.size)
        self.grace = Grace(method.grace, self.size)
        self.version = [0] * self.size  # which each rank computes for, or calls
        self.called = [-1] * self.size  # newest version that it called
        self.newest = [-1] * self.size  # newest pinned version of its groups
        self.at = [self.size] + [0] * (self.versions + 1)  # ranks by `called` + 1
        self.slowest = -1
        self.held: list[int] = []
        self.arrived = [0.0] * self.size  # at the version that it calls
        self.syncing: list[int] = []
        self.open: dict[_Key, _Open] = {}
        self.pinned: dict[_Key, float] = {}  # when the result is there
        self.groups: dict[int, tuple[list[list[int]], list[int]]] = {}
        self.queue: list[tuple[float, int, int, int]] = []  # time; 0, rank, or 1, key
        self.tally = Tally(self.size)

    def play(self) -> Tally:
        """Simulate until all ranks have made all versions."""
        for rank in range(self.size):
            self._compute(0.0, rank, 0)
        while self.queue:
            now, kind, what, group = heapq.heappop(self.queue)
            if kind == 0:
                self._arrive(now, what)
            elif (what, group) not in self.pinned:
                self._pin(now, (what, group))
        return self.tally

    def _compute(self, now: float, rank: int, version: int) -> None:
        """Let a rank compute for a version, or end after the last one."""
        self.version[rank] = version
        if version >= self.versions:
            self.tally.seconds = max(self.tally.seconds, now)
            self._call(now, rank, self.versions)
            return
        seconds = self.compute[version][rank]
        if self.grace.fixed is None:
            self.grace.computed(np.array([rank]), np.array([seconds]))
        self.tally.gradients += 1
        self.tally.computed += 1
        heapq.heappush(self.queue, (now + seconds, 0, rank, 0))

    def _call(self, now: float, rank: int, version: int) -> None:
        """Note that a rank has called a version, and let ranks go on that waited for that."""
        self.at[self.called[rank] + 1] -= 1
        self.called[rank] = version
        self.at[version + 1] += 1
        before = self.slowest
        while self.slowest < self.versions and not self.at[self.slowest + 1]:
            self.slowest += 1
        if self.slowest > before:
            held, self.held = self.held, []
            for other in held:
                heapq.heappush(self.queue, (now, 0, other, 0))

    def _group(self, version: int, rank: int) -> tuple[int, list[int]]:
        """Return the number and the members of a rank's group."""
        if version not in self.groups:
            table = members_of(
                self.method, self.size, self.costs.group_size, version, self.seed
            ).tolist()
            members = [[member for member in row if member >= 0] for row in table]
            of = [0] * self.size
            for number, row in enumerate(members):
                for member in row:
                    of[member] = number
            self.groups[version] = members, of
        members, of = self.groups[version]
        return of[rank], members[of[rank]]

    def _arrive(self, now: float, rank: int) -> None:
        """Handle the call of a rank for its version, which the window may hold back."""
        version = self.version[rank]
        if self.called[rank] < version:
            self.arrived[rank] = now
            self._call(now, rank, version)
        if self.slowest < version - self.window:
            self.held.append(rank)
            return
        self.tally.calls += 1
        if synchronises(self.method, version):
            self._synchronise(now, rank, version)
            return
        group, members = self._group(version, rank)
        key = (version, group)
        if key in self.pinned:
            self._late(now, rank, key)
            return
        if key not in self.open:
            # Members whose newest contribution is of the version before are awaited.
            near = {m for m in members if self.called[m] == version - 1}
            self.open[key] = _Open(now, awaited=near)
            if near:
                grace = float(self.grace.of(np.array([rank]))[0])
                heapq.heappush(self.queue, (now + grace, 1, *key))
        opened = self.open[key]
        opened.present.append(rank)
        opened.awaited.discard(rank)
        if not opened.awaited:
            self._pin(now, key)

    def _synchronise(self, now: float, rank: int, version: int) -> None:
        self.syncing.append(rank)
        if len(self.syncing) < self.size:
            return
        for other in self.syncing:
            self.tally.waited[other] += now - self.arrived[other]
            self._compute(now + self.costs.world, other, version + 1)
        self.syncing = []
        self.tally.averaged_all()

    def _pin(self, now: float, key: _Key) -> None:
        """Fix what a group's version averages, and let the members go on that are there."""
        version = key[0]
        opened = self.open[key]
        _, members = self._group(version, opened.present[0])
        self.pinned[key] = now + self.costs.group
        for member in members:
            self.newest[member] = max(self.newest[member], version)
            self.tally.ages += max(version - self.called[member], 0)
        self.tally.averaged += len(members)
        self.tally.averages += 1
        for rank in opened.present:
            self.tally.waited[rank] += now - self.arrived[rank]
            self._compute(now + self.costs.group, rank, version + 1)
        self._note_spread(now, key)

    def _late(self, now: float, rank: int, key: _Key) -> None:
        """Take the newest result of the rank's groups, and go on after it."""
        self.tally.late += 1
        self.tally.waited[rank] += now - self.arrived[rank]
        if key in self.open:
            self.open[key].awaited.discard(rank)
            self._note_spread(now, key)
        newest = max(self.newest[rank], key[0])
        group, _ = self._group(newest, rank)
        done = max(now, self.pinned[newest, group]) + self.costs.late
        self._compute(done, rank, newest + 1)

    def _note_spread(self, now: float, key: _Key) -> None:
        """Note the spread of a pinned version's arrivals once the last awaited one is there."""
        if not self.open[key].awaited:
            opened = self.open.pop(key)
            present = np.array(opened.present)
            self.grace.arrived(present, np.full(len(present), now - opened.first))
