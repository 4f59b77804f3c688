"""Waits for other ranks while a collective is made: warnings, and the timeout."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import StallError
from ..option_values import SHORTEST_WARNING_S
from ..options import Options
from .reports import describe_ranks

_CHECK_S = 0.05  # about the time between two checks of a wait
_STOPPED_S = 0.5  # longer than a check is delayed on a busy machine
_log = logging.getLogger("wagma")
_HOW_THEY_MEET = (
    "ranks that are started without MPI meet if they are on one machine, of one user, and "
    "have the same WAGMA_JOB, or else the same MASTER_ADDR and MASTER_PORT"
)


class Patience(NamedTuple):
    """The options of waits. Wrong values are ignored here: the meeting refuses them."""

    timeout: float = math.inf  # seconds until a wait raises StallError, infinity for never
    stall_warning: float = 60.0  # seconds between warnings, infinity for none; 0.1 or more
    name: str | None = None  # of the collective, shown in warnings

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Patience:
        """Return the patience in the keyword arguments of a collective and the environment."""
        chosen = {name: options[name] for name in cls._fields if name in options}
        try:
            used = Options(**chosen).with_environment()
            return cls(_seconds(used.timeout), _seconds(used.stall_warning), used.name)
        except (TypeError, ValueError):
            return cls()


class Wait:
    """One wait for other ranks; it begins now.

    Args:
        patience: timeout and interval of warnings.
        rank: the rank that waits.
        watch: called at every check; an exception that it raises ends the wait.
        what: the call that waits, for messages.
        hint: advice for messages about missing ranks.
    """

    def __init__(
        self,
        patience: Patience,
        rank: int,
        watch: Callable[[], None] | None = None,
        *,
        what: str = "the creation",
        hint: str = _HOW_THEY_MEET,
    ) -> None:
        self._patience = patience
        self._rank = rank
        self._watch = watch
        self._what = what
        self._hint = hint
        self._interval = max(patience.stall_warning, SHORTEST_WARNING_S)
        self._waited = 0.0
        self._checked_at = time.monotonic()
        self._quiet_until = self._interval

    @property
    def seconds(self) -> float:
        """Return the seconds that this process has waited.

        Much more time than usual between two checks means that the process was stopped, by the job
        system or a debugger. That time does not count.
        """
        now = time.monotonic()
        passed, self._checked_at = now - self._checked_at, now
        self._waited += passed if passed < _STOPPED_S else _CHECK_S
        return self._waited

    def check(self, missing: Sequence[int]) -> None:
        """Warn of missing ranks when it is time; `()`: unknown ranks. Call it about every 50 ms.

        Raises:
            StallError: the timeout is over.
        """
        if self._watch is not None:
            self._watch()
        seconds, (timeout, _, name) = self.seconds, self._patience
        whom = describe_ranks(missing) if missing else "other ranks"
        have = "has" if len(missing) == 1 else "have"
        waits = f"has waited {seconds:.1f} s in {self._what} for {whom}, which {have} not come"
        if seconds >= timeout:
            raise StallError(f"rank {self._rank} {waits} (timeout {timeout:.3g} s): {self._hint}")
        if seconds >= self._quiet_until:
            self._quiet_until = seconds + self._interval
            title = "" if name is None else f" ({name})"
            _log.warning("rank %d%s %s: %s", self._rank, title, waits, self._hint)


def _seconds(value: Any) -> float:
    seconds = math.inf if value is None else float(value)
    if not seconds >= 0:
        raise ValueError(f"{seconds} is no time to wait")
    return seconds
