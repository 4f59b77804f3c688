"""Which gradients make which version of a parameter server: the rules, without any message.

The rules are those of Dutta et al., "Slow and Stale Gradients Can Win the Race" (AISTATS 2018),
Sec. 2. A server tells what happened (`offer`, `taken`, `pause`, `lose`) and carries out the actions
that come back, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Literal, NamedTuple, get_args

__all__ = ["METHODS", "Action", "Counts", "Kind", "Method", "Selection", "Unused"]

Method = Literal["k-sync", "k-batch-sync", "k-async", "k-batch-async"]
METHODS: tuple[Method, ...] = get_args(Method)
_CANCELLING = ("k-sync", "k-batch-sync")
_DISTINCT = ("k-sync", "k-async")  # a version's gradients are of so many learners


class Kind(IntEnum):
    """What the server has to do."""

    TAKE = 1  # receive the gradient that the learner offers, then call `taken`
    APPLY = 2  # step with the gradients that were taken: one version more
    GIVE = 3  # send the parameters to the learner
    TELL = 4  # say to the learner, which computes, that there is a newer version
    DROP = 5  # forget the gradients that were taken for the coming version


class Unused(IntEnum):
    """Whether what a learner offered is left out of all versions, and why."""

    NO = 0
    CANCELLED = 1  # it came after its version
    DROPPED = 2  # too few learners are left for a version that it could be a part of


class Action(NamedTuple):
    """One thing to do.

    Attributes:
        learner: with which one; -1: with none.
        staleness: of TAKE: versions between the one that the gradient comes from and the one that
            it is applied to.
        waits: of TAKE: the learner gets parameters next, and does not compute before.
        unused: of GIVE: whether what the learner offered is left out.
    """

    kind: Kind
    learner: int = -1
    staleness: int = 0
    waits: bool = False
    unused: Unused = Unused.NO


@dataclass
class Counts:
    """What happened so far; a d-vector is one gradient or one copy of the parameters.

    Attributes:
        up: gradients that were sent to the servers.
        down: copies of the parameters that were sent to learners.
        cancelled: gradients that came after their version, of methods that cancel.
        dropped: gradients, sent or not, that no version could use: it lacked the others at the end.
        used: gradients that are part of a version.
        staleness: summed over `used`.
    """

    up: int = 0
    down: int = 0
    cancelled: int = 0
    dropped: int = 0
    used: int = 0
    staleness: int = 0


class _State(Enum):
    COMPUTES = "computes"
    SENDS = "sends"  # its gradient is being received
    WAITS = "waits"  # its gradient was taken, and it gets parameters
    PAUSES = "pauses"  # it has left its loop
    GONE = "gone"  # it is closed
    LOST = "lost"  # it has failed or died


class Selection:
    """The state of the selection: which learner does what, and what is taken for the next version.

    Args:
        method: one of METHODS.
        k: gradients of a version, 1 to `learners`.
        learners: how many there are; they are numbered from 0.

    Attributes:
        version: versions made so far, which is the version of the parameters.
        counts: see `Counts`.
        stop: somebody wants the training to end.
        stopped: the version at which it ends is there: no learner that has not heard of it gives
            gradients to another one.

    Not thread-safe.
    """

    def __init__(self, method: str, k: int, learners: int) -> None:
        self.version = 0
        self.counts = Counts()
        self.stop = self.stopped = False
        self._heard: set[int] = set()  # learners that know that it has stopped
        self._method = method
        self._k = k
        self._states = dict.fromkeys(range(learners), _State.COMPUTES)
        self._taken = 0
        self._ages: list[int] = []  # staleness of the gradients among those that were taken
        self._told: set[int] = set()  # learners that know of a newer version than theirs

    def offer(self, learner: int, version: int, *, empty: bool = False) -> Action:
        """Decide on a gradient that `learner` has computed from the parameters of `version`.

        Args:
            learner: which one; not a lost one.
            version: of the parameters.
            empty: the learner has no gradient, and would take its place in a version.

        Returns:
            TAKE, which a call of `taken` or `lose` follows, or GIVE: the gradient is not used.
        """
        self._states[learner] = _State.COMPUTES
        if self._method in _CANCELLING and version < self.version:
            self.counts.cancelled += not empty
            return self._give(learner, Unused.CANCELLED)
        if not self._is_reachable() or self._ends_for(learner):
            self.stopped |= self.stop
            self.counts.dropped += not empty
            return self._give(learner, Unused.DROPPED)
        self._states[learner] = _State.SENDS
        completes = self._taken + 1 == self._k
        waits = completes or self._method != "k-batch-sync"
        return Action(Kind.TAKE, learner, staleness=self.version - version, waits=waits)

    def taken(self, action: Action, *, empty: bool = False) -> list[Action]:
        """Count a gradient that has come; `empty`: the learner takes a place without one."""
        if not empty:
            self.counts.up += 1
            self._ages.append(action.staleness)
        learner = action.learner
        self._taken += 1
        self._states[learner] = _State.WAITS if action.waits else _State.COMPUTES
        if self._taken == self._k:
            return self._apply()
        if self._method == "k-batch-async":
            return [self._give(learner)]
        return []

    def pause(self, learner: int) -> list[Action]:
        """See that a learner has left its loop, until `resume` or `synchronize`."""
        self._states[learner] = _State.PAUSES
        return self._release()

    def resume(self) -> None:
        """See that those that had left their loops go on: the ranks have met."""
        for learner in self._in(_State.PAUSES):
            self._states[learner] = _State.COMPUTES

    def leave(self, learner: int) -> list[Action]:
        """See that a learner is closed."""
        self._states[learner] = _State.GONE
        return self._release()

    def lose(self, learner: int) -> list[Action]:
        """See that a learner has failed or died; what was taken from it stays."""
        if self._states[learner] is not _State.GONE:
            self._states[learner] = _State.LOST
        return self._release()

    def synchronize(self) -> list[Action]:
        """Begin anew when all have left their loops: one version more, and nothing is taken."""
        self.version += 1
        live = self.live()
        actions = self._drop()
        self._told.clear()
        return [*actions, *(self._give(learner) for learner in live)]

    def is_over(self) -> bool:
        """Return whether no learner is in its loop."""
        active = (_State.COMPUTES, _State.SENDS, _State.WAITS)
        return not any(state in active for state in self._states.values())

    def is_short(self) -> bool:
        """Return whether no version is possible any more: too many learners are lost.

        Those that have left in order have ended their training, as the others will.
        """
        needed = self._k if self._method in _DISTINCT else 1
        return len(self._states) - len(self.lost()) < needed

    def live(self) -> list[int]:
        """Return the learners that have not left the training."""
        return [
            learner
            for learner, state in self._states.items()
            if state not in (_State.GONE, _State.LOST)
        ]

    def lost(self) -> list[int]:
        """Return the learners that have failed or died."""
        return self._in(_State.LOST)

    def computing(self) -> list[int]:
        """Return the learners from which an offer may come."""
        return self._in(_State.COMPUTES)

    def _in(self, state: _State) -> list[int]:
        return [learner for learner, its in self._states.items() if its is state]

    def _ends_for(self, learner: int) -> bool:
        """Return whether what a learner offers is left out, since the others stop."""
        sent = self._method == "k-batch-async"  # without an answer: it has to be taken
        return self.stopped and learner not in self._heard and not sent

    def _is_reachable(self) -> bool:
        """Return whether the learners that compute can complete the coming version."""
        return self._method not in _DISTINCT or self._taken + len(self.computing()) >= self._k

    def _apply(self) -> list[Action]:
        self.version += 1
        self.stopped |= self.stop
        self.counts.used += len(self._ages)
        self.counts.staleness += sum(self._ages)
        self._taken, self._ages = 0, []
        computing = self.computing()
        actions = [Action(Kind.APPLY)]
        actions += [self._give(learner) for learner in self._in(_State.WAITS)]
        if self._method in _CANCELLING:
            untold = [learner for learner in computing if learner not in self._told]
            actions += [Action(Kind.TELL, learner) for learner in untold]
            self._told.update(untold)
        return actions

    def _release(self) -> list[Action]:
        """Let those go on that wait for a version which cannot come."""
        waiting = self._in(_State.WAITS)
        if self._is_reachable() or not waiting:
            return []
        return [*self._drop(), *(self._give(learner, Unused.DROPPED) for learner in waiting)]

    def _drop(self) -> list[Action]:
        taken, self._taken = self._taken, 0
        self.counts.dropped += len(self._ages)
        self._ages = []
        return [Action(Kind.DROP)] if taken else []

    def _give(self, learner: int, unused: Unused = Unused.NO) -> Action:
        self.counts.down += 1
        self._states[learner] = _State.COMPUTES
        self._told.discard(learner)
        if self.stopped:
            self._heard.add(learner)
        return Action(Kind.GIVE, learner, unused=unused)
