"""Options of a collective: what users write, checked and translated for the engine.

Ranges are checked by the engine (csrc/options.c); here are only the values that Python spells
differently ("all", "auto", None), and what this version of the engine does not know yet.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsFloat, SupportsIndex, TypedDict

__all__ = ["Arguments", "CommonArguments", "Options"]

# What the engine of this version supports; anything else is refused, never ignored.
_SUPPORTED: dict[str, tuple[str, ...]] = {
    "late": ("stale",),
    "missed": ("once",),
    "activation": ("group",),
    "grouping": ("dynamic",),
    "transport": ("auto", "shm"),
}


def _number(text: str) -> float | None:
    return None if text.lower() == "none" else float(text)


# A variable that is set overrides the argument: it is for whoever runs the program.
_ENVIRONMENT: dict[str, tuple[str, Callable[[str], object]]] = {
    "WAGMA_TRANSPORT": ("transport", str),
    "WAGMA_STALL_WARNING": ("stall_warning", _number),
    "WAGMA_REDO_AFTER": ("redo_after", float),
    "WAGMA_SHM_LIMIT": ("shm_limit", int),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the ranks of a collective have to agree on, beside the array's shape and dtype.

    Attributes:
        group_size: maximum members of a group; None: all ranks.
        quorum: members that start a version; "all": every member.
        grace: seconds that a version is held open for recent members once the quorum is present;
            "auto": measured.
        late: what a late rank contributes. "stale": its newest contribution.
        missed: what a late rank makes of several missed versions. "once": the newest is merged.
        activation: whose quorum starts a version. "group": the group's own.
        grouping: how groups follow from the version. "dynamic": `topology.groups`.
        sync_period: version t is a sync version when (t+1) % sync_period == 0; None: never.
        average: whether results are divided by the sum of the weights.
        window: versions that a rank may be ahead of the slowest; None: sync_period, or 64.
        transport: "auto" or "shm": the ranks share memory on one node.
        timeout: seconds until a wait ends in StallError; None: never.
        stall_warning: seconds between warnings about a stuck wait; None: no warnings.
        seed: of the draws that some options make; those supported now make none.
        name: shown in warnings and by repr; None: no name.
        shm_limit: bytes of shared memory per rank; None: as many as the protocol can use.
        redo_after: seconds until the work of a stopped rank is done by another; None: 200e-6.
    """

    group_size: SupportsIndex | None = None
    quorum: SupportsIndex | Literal["all"] = "all"
    grace: SupportsFloat | Literal["auto"] = "auto"
    late: str = "stale"
    missed: str = "once"
    activation: str = "group"
    grouping: str = "dynamic"
    sync_period: SupportsIndex | None = None
    average: bool = True
    window: SupportsIndex | None = None
    transport: str = "auto"
    timeout: SupportsFloat | None = None
    stall_warning: SupportsFloat | None = 60.0
    seed: int = 0
    name: str | None = None
    shm_limit: SupportsIndex | None = None
    redo_after: SupportsFloat | None = None

    def with_environment(self, environ: Mapping[str, str] = os.environ) -> Options:
        """These options with those that the environment sets instead.

        Raises:
            ValueError: a variable does not hold what its option takes.
        """
        changes: dict[str, Any] = {}
        for variable, (option, convert) in _ENVIRONMENT.items():
            text = environ.get(variable)
            if text is None:
                continue
            try:
                changes[option] = convert(text)
            except ValueError:
                raise ValueError(
                    f"{variable}={text!r} in the environment is not a number"
                ) from None
        return replace(self, **changes)

    def engine(self, size: int, count: int, dtype: int) -> dict[str, int | float]:
        """The engine's wagma_options for `size` ranks and arrays of `count` elements.

        Raises:
            TypeError, ValueError: an option has a value of the wrong type or that is not supported;
                the ranges are the engine's business.
        """
        for option, supported in _SUPPORTED.items():
            value = getattr(self, option)
            if value not in supported:
                expected = " or ".join(map(repr, supported))
                raise ValueError(f"{option}={value!r} is not supported by this version: {expected}")
        if isinstance(self.quorum, str) and self.quorum != "all":
            raise ValueError(
                f"quorum={self.quorum!r} is not supported by this version: an int or 'all'"
            )
        if not isinstance(self.average, bool):
            raise TypeError(f"average={self.average!r} must be True or False")
        _integer("seed", self.seed)
        options: dict[str, int | float] = {
            "size": size,
            "count": count,
            "dtype": dtype,
            "average": int(self.average),
            "group_size": _positive("group_size", self.group_size, default=0),
            "quorum": _positive("quorum", None if self.quorum == "all" else self.quorum, default=0),
            "sync_period": _positive("sync_period", self.sync_period, default=0),
            "window": _positive("window", self.window, default=0),
            "shm_limit": _positive("shm_limit", self.shm_limit, default=0),
            "grace": _seconds("grace", None if self.grace == "auto" else self.grace),
            "timeout": _seconds("timeout", self.timeout),
            "stall_warning": _seconds("stall_warning", self.stall_warning),
        }
        if self.redo_after is not None:
            options["redo_after"] = _seconds("redo_after", self.redo_after)
        return options


class CommonArguments(TypedDict, total=False):
    """Keyword arguments of every collective class: `Options` without group_size and quorum."""

    grace: SupportsFloat | Literal["auto"]
    late: str
    missed: str
    activation: str
    grouping: str
    sync_period: SupportsIndex | None
    average: bool
    window: SupportsIndex | None
    transport: str
    timeout: SupportsFloat | None
    stall_warning: SupportsFloat | None
    seed: int
    name: str | None
    shm_limit: SupportsIndex | None
    redo_after: SupportsFloat | None


class Arguments(CommonArguments, total=False):
    """Keyword arguments of `PartialAllreduce`: the fields of `Options`."""

    group_size: SupportsIndex | None
    quorum: SupportsIndex | Literal["all"]


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} must be an int") from None


def _positive(name: str, value: SupportsIndex | str | None, *, default: int) -> int:
    """An int >= 1; `default` is what the engine takes for None."""
    if value is None:
        return default
    number = _integer(name, value)
    if number < 1:
        raise ValueError(f"{name}={number} must be at least 1")
    return number


def _seconds(name: str, value: SupportsFloat | str | None) -> float:
    """Seconds >= 0; -1 is what the engine takes for None."""
    if value is None:
        return -1.0
    if isinstance(value, (str, bool)):
        raise TypeError(f"{name}={value!r} must be a number of seconds")
    try:
        number = float(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} must be a number of seconds") from None
    if not number >= 0:
        raise ValueError(f"{name}={number} must be 0 or more seconds")
    return number
