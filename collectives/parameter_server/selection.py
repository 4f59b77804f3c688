"""Rules that select the gradients of each version of a parameter server. Pure: no messages.

The rules are those of Dutta et al., "Slow and Stale Gradients Can Win the Race" (AISTATS 2018),
Sec. 2. A server calls `offer`, `add`, `pause` or `lose` for each event, and executes the actions
that they return, in order.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Literal, NamedTuple, get_args

Method = Literal["k-sync", "k-batch-sync", "k-async", "k-batch-async"]
METHODS: tuple[Method, ...] = get_args(Method)
_CANCELLING = ("k-sync", "k-batch-sync")
_DISTINCT = ("k-sync", "k-async")  # the k gradients of a version come from k learners


class Kind(IntEnum):
    """Kind of an action of the server."""

    TAKE = 1  # receive the gradient that the learner offers, then call `add`
    APPLY = 2  # step with the received gradients: a new version
    GIVE = 3  # send the parameters to the learner
    TELL = 4  # notify the learner, which computes, of a newer version
    DROP = 5  # discard the received gradients of the next version


class Unused(IntEnum):
    """Whether an offered gradient is left out of all versions, and why."""

    NO = 0
    CANCELLED = 1  # it came after its version
    DROPPED = 2  # too few learners are left to complete its version


class Action(NamedTuple):
    """One action of the server."""

    kind: Kind
    learner: int = -1  # the learner that the action is for; -1: none
    # of TAKE: versions between the parameters that the gradient comes from and those that it is
    # applied to
    staleness: int = 0
    waits: bool = False  # of TAKE: the learner waits for new parameters before it computes
    unused: Unused = Unused.NO  # of GIVE: whether the offered gradient is left out


@dataclass
class Counts:
    """Counts of gradients and copies of the parameters so far."""

    up: int = 0  # gradients that were sent to the servers
    down: int = 0  # copies of the parameters that were sent to learners
    cancelled: int = 0  # gradients that came after their version, of methods that cancel
    dropped: int = 0  # gradients, sent or not, whose version was never completed
    used: int = 0  # gradients that are part of a version
    staleness: int = 0  # sum of the staleness of all used gradients


class _State(Enum):
    COMPUTES = "computes"
    SENDS = "sends"  # its gradient is being received
    WAITS = "waits"  # its gradient was received, and it gets parameters
    PAUSES = "pauses"  # it has left its loop
    GONE = "gone"  # it is closed
    LOST = "lost"  # it has failed or died


class Selection:
    """State of the selection: the state of each learner and the gradients of the next version.

    Args:
        method: one of METHODS.
        k: gradients of a version, 1 to `learners`.
        learners: number of learners; they are numbered from 0.

    Attributes:
        version: number of versions so far, which is the version of the parameters.
        counts: see `Counts`.
        stop: a rank wants the training to end.
        stopped: the last version is complete: gradients of learners that do not know this yet are
            left out.

    Not thread-safe.
    """

    def __init__(self, method: str, k: int, learners: int) -> None:
        self.version = 0
        self.counts = Counts()
        self.stop = self.stopped = False
        self._know_the_end: set[int] = set()  # learners that know that it has stopped
        self._method = method
        self._k = k
        self._states = dict.fromkeys(range(learners), _State.COMPUTES)
        self._places = 0  # filled places of the next version, with or without a gradient
        self._ages: list[int] = []  # staleness of the gradients among them
        self._notified: set[int] = set()  # learners that know of a newer version than theirs

    def offer(self, learner: int, version: int, *, empty: bool = False) -> Action:
        """Decide on a gradient that `learner` has computed from the parameters of `version`.

        Args:
            learner: the learner, which is not lost.
            version: version of the parameters.
            empty: the learner has no gradient, and fills its place in a version without one.

        Returns:
            TAKE, after which `add` or `lose` has to be called, or GIVE: the gradient is not used.
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
        completes = self._places + 1 == self._k
        waits = completes or self._method != "k-batch-sync"
        return Action(Kind.TAKE, learner, staleness=self.version - version, waits=waits)

    def add(self, action: Action, *, empty: bool = False) -> list[Action]:
        """Add a received gradient; `empty`: the learner fills its place without one."""
        if not empty:
            self.counts.up += 1
            self._ages.append(action.staleness)
        learner = action.learner
        self._places += 1
        self._states[learner] = _State.WAITS if action.waits else _State.COMPUTES
        if self._places == self._k:
            return self._apply()
        if self._method == "k-batch-async":
            return [self._give(learner)]
        return []

    def pause(self, learner: int) -> list[Action]:
        """Note that a learner has left its loop, until `resume` or `synchronize`."""
        self._states[learner] = _State.PAUSES
        return self._release()

    def resume(self) -> None:
        """Note that the learners outside of their loops continue: all ranks have met."""
        for learner in self._in(_State.PAUSES):
            self._states[learner] = _State.COMPUTES

    def leave(self, learner: int) -> list[Action]:
        """Note that a learner is closed."""
        self._states[learner] = _State.GONE
        return self._release()

    def lose(self, learner: int) -> list[Action]:
        """Note that a learner has failed or died; its received gradients stay."""
        if self._states[learner] is not _State.GONE:
            self._states[learner] = _State.LOST
        return self._release()

    def synchronize(self) -> list[Action]:
        """Begin a new version without gradients, when all learners have left their loops."""
        self.version += 1
        live = self.live()
        actions = self._drop()
        self._notified.clear()
        return [*actions, *(self._give(learner) for learner in live)]

    def is_over(self) -> bool:
        """Return whether no learner is in its loop."""
        active = (_State.COMPUTES, _State.SENDS, _State.WAITS)
        return not any(state in active for state in self._states.values())

    def is_short(self) -> bool:
        """Return whether no version is possible any more: too many learners are lost.

        Closed learners do not count as lost: they have ended their training, as the others will.
        """
        needed = self._k if self._method in _DISTINCT else 1
        return len(self._states) - len(self.lost()) < needed

    def live(self) -> list[int]:
        """Return the learners that are neither closed nor lost."""
        return [
            learner
            for learner, state in self._states.items()
            if state not in (_State.GONE, _State.LOST)
        ]

    def lost(self) -> list[int]:
        """Return the learners that have failed or died."""
        return self._in(_State.LOST)

    def computing(self) -> list[int]:
        """Return the learners that may make an offer."""
        return self._in(_State.COMPUTES)

    def _in(self, state: _State) -> list[int]:
        return [learner for learner, current in self._states.items() if current is state]

    def _ends_for(self, learner: int) -> bool:
        """Return whether a learner's gradient is left out because the others stop."""
        sent = self._method == "k-batch-async"  # before the answer: it must be received
        return self.stopped and learner not in self._know_the_end and not sent

    def _is_reachable(self) -> bool:
        """Return whether the learners that compute can complete the next version."""
        return self._method not in _DISTINCT or self._places + len(self.computing()) >= self._k

    def _apply(self) -> list[Action]:
        self.version += 1
        self.stopped |= self.stop
        self.counts.used += len(self._ages)
        self.counts.staleness += sum(self._ages)
        self._places, self._ages = 0, []
        computing = self.computing()
        actions = [Action(Kind.APPLY)]
        actions += [self._give(learner) for learner in self._in(_State.WAITS)]
        if self._method in _CANCELLING:
            unaware = [learner for learner in computing if learner not in self._notified]
            actions += [Action(Kind.TELL, learner) for learner in unaware]
            self._notified.update(unaware)
        return actions

    def _release(self) -> list[Action]:
        """Release the learners that wait for a version which cannot be completed."""
        waiting = self._in(_State.WAITS)
        if self._is_reachable() or not waiting:
            return []
        return [*self._drop(), *(self._give(learner, Unused.DROPPED) for learner in waiting)]

    def _drop(self) -> list[Action]:
        filled, self._places = self._places, 0
        self.counts.dropped += len(self._ages)
        self._ages = []
        return [Action(Kind.DROP)] if filled else []

    def _give(self, learner: int, unused: Unused = Unused.NO) -> Action:
        self.counts.down += 1
        self._states[learner] = _State.COMPUTES
        self._notified.discard(learner)
        if self.stopped:
            self._know_the_end.add(learner)
        return Action(Kind.GIVE, learner, unused=unused)
