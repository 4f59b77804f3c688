"""Uneven data: the last common version, and the pace of a rank whose data ran out."""

import operator
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import SupportsIndex

from torch.optim import Optimizer

from wagma.collectives import MismatchError, PeerError, QuorumMismatchError, StallError
from wagma.training import watching
from wagma.training.clock import Clock, Moment
from wagma.training.closures import needs_closure
from wagma.training.strategies.base import Algorithm

UNEVEN = (
    "If the ranks have unequally many batches, a rank whose data has run out takes part in the "
    "steps of the others with opt.join(): with opt.join(len(loader)): for batch in loader: ..."
)
RESUME = "The training can start again from its last checkpoint, see wagma.checkpoint.Checkpointer"
_DEAD = " is dead"  # the engine's words for a rank whose process has ended
KEPT = 32  # compute times that are remembered


def last_version(algorithm: Algorithm, inner: Optimizer, steps: SupportsIndex) -> int:
    """Return the version that all ranks reach when each makes its `steps`; collective.

    Raises:
        TypeError, ValueError, RuntimeError: see `wagma.DistributedOptimizer.join`; on every rank.
    """
    if not algorithm.joins:
        raise RuntimeError(
            f"join() with {type(algorithm).__name__}, whose ranks need not make equally many "
            "steps: let loops count versions, as in while opt.version < steps"
        )

    def check() -> int:
        try:
            if isinstance(steps, bool):
                raise TypeError
            number = operator.index(steps)
        except TypeError:
            raise TypeError(
                f"steps={steps!r} must be an int, the number of steps that this rank makes in the "
                "block, as len(loader); count batches of unknown number beforehand"
            ) from None
        if number < 0:
            raise ValueError(f"steps={number} must be 0 or more")
        if needs_closure(inner):
            raise ValueError(
                f"{type(inner).__name__} evaluates a closure as often as it likes, and a rank "
                "without data has none: give every rank equally many batches instead of join()"
            )
        return algorithm.version + number

    with algorithm.meet() as meeting:
        return int(max(meeting.exchange(check, last=True)))


@contextmanager
def naming_join(algorithm: Algorithm, blocks: Sequence[str]) -> Iterator[None]:
    """Mention `join` in warnings and errors about ranks that do not arrive; tell the watcher.

    A mismatch of quorums is left alone, because its ranks arrived. For a dead rank, whose data did
    not run out, the message mentions checkpoints instead.

    Args:
        algorithm: the algorithm whose collectives are called.
        blocks: names of the optimizer's with blocks around the call.
    """
    joins = "join" in blocks or not algorithm.joins
    algorithm.hint(None if joins else UNEVEN)
    watcher = watching.watcher
    if watcher is not None:
        watcher.enter(algorithm)
    try:
        yield
    except QuorumMismatchError:
        raise
    except (StallError, PeerError, MismatchError) as error:
        dead = _DEAD in str(error)
        if dead or not joins:
            error.args = (f"{error}. {RESUME if dead else UNEVEN}", *error.args[1:])
        raise
    finally:
        if watcher is not None:
            watcher.leave()


def check_before_last(call: str, version: int, last: int | None) -> None:
    """Check that a rank makes no version beyond the end of its `join`.

    Args:
        call: the call to refuse.
        version: next version of this rank.
        last: version at which the `join` ends; None: the rank is in no `join`.

    Raises:
        RuntimeError: the `join` ends at `version` or before.
    """
    if last is not None and version >= last:
        raise RuntimeError(
            f"{call} at version {version} inside join(), whose ranks end at {last}: pass join() "
            "the number of steps that the loop makes, or end the loop there if versions advance by "
            "more than one: with opt.join(steps) as last: ... if opt.version >= last: break"
        )


class Pace:
    """The compute time of a rank between two steps.

    Args:
        clock: of the device that computes.

    Not thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: deque[tuple[Moment, Moment]] = deque(maxlen=KEPT)
        self._left: Moment | None = None

    def arrive(self) -> None:
        """Record that a step begins."""
        if self._left is not None:
            self._steps.append((self._left, self._clock.mark()))

    def leave(self) -> None:
        """Record that the step ends."""
        self._left = self._clock.mark()

    def keep(self) -> None:
        """Sleep for the median compute time of the last 32 steps; not before the second."""
        if self._steps:
            time.sleep(median(end.seconds - begin.seconds for begin, end in self._steps))
