"""Versions that are averaged in groups, of which every rank makes each one. Pure, vectorised.

Every rank computes, calls the version, and goes on when the call returns. A group's version is
pinned when its quorum is there and grace is over. So times of a version follow from those of the
version before it, for all ranks at once.
"""

import numpy as np
import numpy.typing as npt

from wagma.collectives.topology import groups, starter_of
from wagma.simulate.activation import hops
from wagma.simulate.costs import Costs
from wagma.simulate.grace import Grace
from wagma.simulate.methods import Method
from wagma.simulate.quadratic import Models
from wagma.simulate.tally import Tally
from wagma.theory.checks import Floats, Ints


def synchronises(method: Method, version: int) -> bool:
    """Tell whether all ranks wait for all at a version."""
    return method.sync_period is not None and (version + 1) % method.sync_period == 0


def members_of(method: Method, ranks: int, group_size: int, version: int, seed: int) -> Ints:
    """Return the members of each group, -1 where a group has fewer: (groups, group_size)."""
    kind = {} if group_size == 1 else {"grouping": method.grouping}
    found = groups(ranks, group_size, version, seed=seed, **kind)
    table = np.full((len(found), group_size), -1, np.int64)
    for row, members in enumerate(found):
        table[row, : len(members)] = members
    return table


def play(method: Method, compute: Floats, costs: Costs, seed: int, models: Models | None) -> Tally:
    """Simulate.

    Args:
        method: of the kind "groups", in which no rank jumps over versions.
        compute: seconds, (versions, P).
        costs: of the communication.
        seed: of the handles, from which pairs and "majority" are drawn.
        models: those of a quadratic objective, or None.
    """
    return _Groups(method, compute, costs, seed, models).play()


class _Groups:
    def __init__(
        self, method: Method, compute: Floats, costs: Costs, seed: int, models: Models | None
    ) -> None:
        self.method, self.compute, self.costs, self.models = method, compute, costs, models
        self.seed = seed
        self.versions, self.size = compute.shape
        self.window = method.default_window(self.size)
        self.grace = Grace(method.grace, self.size)
        self.every = np.arange(self.size)
        self.called = np.zeros(compute.shape)  # when each rank called each version
        self.posted = -np.inf  # when the result of the period before is there, with `overlap`
        self.tally = Tally(self.size)

    def play(self) -> Tally:
        returned = np.zeros(self.size)
        tally = self.tally
        for version in range(self.versions):
            ready = returned + self.compute[version]
            calls = ready
            if version >= self.window:
                calls = np.maximum(ready, self.called[version - self.window].max())
                tally.waited += calls - ready
            self.called[version] = calls
            self.grace.computed(self.every, self.compute[version])
            if self.models:
                self.models.step(version)
            if synchronises(self.method, version):
                returned = self._synchronised(calls)
            elif self.costs.group_size == 1:
                returned = calls
            else:
                returned = self._averaged(version, calls)
            if self.models:
                self.models.measure()
        tally.seconds = float(returned.max())
        tally.calls = self.versions * self.size
        tally.gradients = tally.computed = float(self.versions * self.size)
        if self.models:
            tally.consensus = self.models.distance
        return tally

    def _synchronised(self, calls: Floats) -> Floats:
        last = calls.max()
        if self.method.overlap:
            returned = np.maximum(calls, self.posted)
            self.posted = last + self.costs.world
            self.tally.waited += returned - calls
        else:
            returned = np.full(self.size, last + self.costs.world)
            self.tally.waited += last - calls
        self.tally.averaged_all()
        if self.models:
            self.models.synchronise()
        return returned

    def _averaged(self, version: int, calls: Floats) -> Floats:
        """Return when the calls of a version return that is averaged in groups."""
        members = members_of(self.method, self.size, self.costs.group_size, version, self.seed)
        scopes = self.every[np.newaxis] if self.method.activation == "world" else members
        pinned, heard = self._pinned(version, calls, scopes)
        late = calls > heard
        done = pinned + self.costs.group
        tally = self.tally
        tally.waited += np.maximum(pinned - calls, 0.0)
        tally.late += int(np.count_nonzero(late))
        ages = self._ages(version, heard, late)
        tally.ages += float(ages.sum())
        tally.averaged += self.size
        tally.averages += len(members)
        if self.models:
            self.models.average(version, members, ages)
        return np.where(late, np.maximum(calls, done) + self.costs.late, done)

    def _pinned(self, version: int, calls: Floats, scopes: Ints) -> tuple[Floats, Floats]:
        """Return when each rank's version is pinned, and when the rank hears of it."""
        present = np.append(calls, np.inf)[scopes]
        order = np.argsort(present, axis=1, kind="stable")
        counts = (scopes >= 0).sum(axis=1)
        rows = np.arange(len(scopes))
        quorum = self.method.quorum
        if quorum == "majority":
            drawn = [starter_of(row[row >= 0].tolist(), version, seed=self.seed) for row in scopes]
            starters = np.argmax(scopes == np.array(drawn)[:, np.newaxis], axis=1)
        else:
            most = counts if quorum == "all" else np.minimum(int(quorum), counts)
            starters = order[rows, most - 1]
        there = present[rows, starters]
        before = self.called[version - 1] if version else np.zeros(self.size)
        # Members whose newest contribution is of the version before are awaited.
        awaited = np.append(before, np.inf)[scopes] <= there[:, np.newaxis]
        last = np.where(awaited, present, -np.inf).max(axis=1)
        ranks = scopes[rows, starters]
        pins = np.maximum(there, np.minimum(there + self.grace.of(ranks), last))
        pinned, heard = np.empty(self.size + 1), np.empty(self.size + 1)
        pinned[scopes] = pins[:, np.newaxis]
        away = hops(starters, counts, scopes.shape[1]) * self.costs.signal
        heard[scopes] = pins[:, np.newaxis] + away
        if self.grace.fixed is None:
            taking = (scopes >= 0) & (present <= pins[:, np.newaxis])
            spreads = np.broadcast_to((last - present.min(axis=1))[:, np.newaxis], scopes.shape)
            self.grace.arrived(scopes[taking].astype(np.intp), spreads[taking])
        return pinned[:-1], heard[:-1]

    def _ages(self, version: int, heard: Floats, late: npt.NDArray[np.bool_]) -> Ints:
        """Return how many versions old each rank's newest contribution was as it heard."""
        ages = late.astype(np.int64)
        behind = np.flatnonzero(late)
        while (behind := behind[ages[behind] <= version]).size:
            behind = behind[self.called[version - ages[behind], behind] > heard[behind]]
            ages[behind] += 1
        return ages
