"""Updates of a parameter server, the last rank, from gradients of the other ranks. Pure.

The methods are those of Dutta et al. (2018), see `wagma.theory.ksync`. Gradients queue at
the server, which takes one after the other.
"""

import heapq

import numpy as np

from wagma.simulate.methods import Method
from wagma.simulate.network import Network
from wagma.simulate.ordered import stopped
from wagma.simulate.tally import Tally
from wagma.theory.checks import Floats, Ints


def play(
    method: Method, compute: Floats, parts: Floats | None, network: Network, size: float
) -> Tally:
    """Simulate.

    Args:
        method: of the kind "server".
        compute: seconds, (updates, P); those of the last rank are not used.
        parts: those of its micro-batches, (updates, P, M), between which k-sync cancels; None: it
            cancels at once.
        network: of the ranks.
        size: bytes of a gradient, and of the parameters.
    """
    server = _Server(method, compute, parts, network, size)
    if method.server == "k-batch-async":
        server.batch_asynchronous()
    elif method.server == "k-async":
        server.asynchronous()
    else:
        server.synchronous()
    tally = server.tally
    tally.averages = len(compute)
    tally.averaged = tally.gradients
    return tally


class _Server:
    def __init__(
        self, method: Method, compute: Floats, parts: Floats | None, network: Network, size: float
    ) -> None:
        self.parts = None if parts is None else parts[:, :-1]
        self.k = int(method.quorum)
        self.batches = method.server.startswith("k-batch")  # several of one learner may count
        self.compute = compute[:, :-1]
        self.updates, self.learners = self.compute.shape
        self.travel = network.message(size)  # of a gradient to the server, and of parameters back
        self.service = max(network.gap, network.overhead) + size * network.reduce_per_byte
        if size:
            self.service += size * network.gap_per_byte
        self.send = max(network.gap, network.overhead) + size * network.gap_per_byte
        self.tally = Tally(self.learners + 1)

    def _queued(self, arrivals: Floats, idle: float = 0.0) -> Floats:
        """Return when the server has taken each of these gradients, which are in order."""
        turns = np.arange(len(arrivals)) * self.service
        alone = np.maximum.accumulate(np.maximum(arrivals, idle) - turns)
        taken: Floats = alone + turns + self.service
        return taken

    def _back(self, done: float, count: int) -> Floats:
        """Return when learners have the new parameters that are sent to one after the other."""
        first = done + self.travel
        return np.linspace(first, first + (count - 1) * self.send, count)

    def synchronous(self) -> None:
        """Take the first K gradients of each update; all learners begin again."""
        tally, k = self.tally, self.k
        begins = np.zeros(self.learners)
        for update in range(self.updates):
            ends = begins + self._mini_batches(update, begins)
            arrivals = np.sort((ends + self.travel).ravel())[:k]
            done = float(self._queued(arrivals)[-1])
            begun = np.vstack([begins, ends[:-1]]) < done if self.batches else None
            missed = int(np.count_nonzero(begun)) - k if begun is not None else self.learners - k
            tally.gradients += k
            tally.computed += k + max(missed, 0)
            tally.calls += self.learners
            if not self.batches:
                tally.late += self.learners - k
                waits = np.maximum(done - ends[0] - self.travel, 0.0)
                tally.waited[:-1] += waits
            back = self._back(done, self.learners)
            if self.parts is not None and not self.batches:
                ends = stopped(begins, self.parts[update], back)
                back = np.where(np.isfinite(ends), ends, back)
            begins = back
        tally.seconds = float(begins.max())

    def _mini_batches(self, update: int, begins: Floats) -> Floats:
        """Return how long each learner takes for 1, 2, ... mini-batches: (n, learners)."""
        taken: Floats = self.compute[update][np.newaxis]
        while self.batches and len(taken) < self.k:
            # No more are needed once the K first of all are known.
            ends = begins + taken
            if np.count_nonzero(ends < ends[-1].min()) >= self.k:
                break
            row = self.compute[(update + len(taken)) % self.updates]
            taken = np.vstack([taken, taken[-1] + row])
        return taken

    def asynchronous(self) -> None:
        """Take K gradients of different learners, which wait for the update; cancel no other."""
        tally, k = self.tally, self.k
        ends = self.compute[0].copy()
        versions = np.zeros(self.learners, np.int64)
        made = np.zeros(self.learners, np.int64)
        idle = 0.0
        for update in range(self.updates):
            first = np.argsort(ends, kind="stable")[:k]
            idle = float(self._queued(ends[first] + self.travel, idle)[-1])
            self._took(update, versions[first])
            tally.waited[first] += np.maximum(idle - ends[first] - 2 * self.travel, 0.0)
            made[first] += 1
            ends[first] = self._back(idle, k) + self.compute[made[first] % self.updates, first]
            versions[first] = update + 1
        begun = np.delete(ends, first)  # learners end with what they compute
        tally.seconds = max(idle, float(begun.max(initial=0.0)) + self.travel) + self.travel

    def batch_asynchronous(self) -> None:
        """Take any K gradients; a learner goes on with what the server has at once."""
        queue = [(float(end), learner) for learner, end in enumerate(self.compute[0])]
        heapq.heapify(queue)
        versions, made = [0] * self.learners, [0] * self.learners
        table = self.compute.tolist()
        idle = 0.0
        for update in range(self.updates):
            ages = []
            for taken in range(1, self.k + 1):
                end, learner = heapq.heappop(queue)
                idle = max(end + self.travel, idle) + self.service
                ages.append(versions[learner])
                versions[learner] = update + (taken == self.k)
                made[learner] += 1
                seconds = table[made[learner] % self.updates][learner]
                heapq.heappush(queue, (idle + self.travel + seconds, learner))
            self._took(update, np.array(ages))
        # All but the last one end with what they compute.
        ends = [end for end, other in queue if other != learner]
        self.tally.seconds = max(idle, max(ends, default=0.0) + self.travel) + self.travel

    def _took(self, update: int, versions: Ints) -> None:
        """Count the gradients of an update, computed at these versions of the parameters."""
        tally = self.tally
        tally.gradients += self.k
        tally.computed += self.k
        tally.calls += self.k
        tally.late += int(np.count_nonzero(versions < update))
        tally.ages += float((update - versions).sum())
