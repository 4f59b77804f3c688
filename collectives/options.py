"""Options of a collective: what users write, checked and translated for the engine.

Checked here is whatever Python spells differently from C ("all", "auto", "carry", None), so that
messages speak of what the user wrote; the other ranges are the engine's (csrc/options.c).
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsFloat, SupportsIndex, TypeAlias, TypedDict

from . import arrays
from ._engine import ACTIVATIONS, GROUPINGS, LATE, MISSED, PROGRESS, QUORUM_MAJORITY, check_options

__all__ = [
    "ENVIRONMENT",
    "OWN",
    "SHORTEST_WARNING_S",
    "Activation",
    "Arguments",
    "CommonArguments",
    "Grouping",
    "Late",
    "Missed",
    "Options",
    "Quorum",
    "Transport",
    "WorldArguments",
    "check_switch",
]

Quorum: TypeAlias = SupportsIndex | Literal["all", "majority"]
Late: TypeAlias = Literal["stale", "skip", "carry"]
Missed: TypeAlias = Literal["once", "fast-forward"]
Activation: TypeAlias = Literal["group", "world"]
Grouping: TypeAlias = Literal["dynamic", "fixed", "pairs"]
Transport: TypeAlias = Literal["auto", "shm", "mpi"]

# What users write, and what the engine calls it.
_CHOICES: dict[str, dict[str, int]] = {
    "late": LATE,
    "missed": MISSED,
    "activation": ACTIVATIONS,
    "grouping": GROUPINGS,
}
_TRANSPORTS = ("auto", "shm", "mpi")
_PROGRESS = ("spin", "yield", "sleep:US", "main")
_SLEEP = "sleep:"
_QUORUMS = {"all": 0, "majority": QUORUM_MAJORITY}


def _number(text: str) -> float | None:
    return None if text.lower() == "none" else float(text)


def _core(text: str) -> int | None:
    """Return the core that a variable names; "last": that of the rank's own cores."""
    if text.lower() == "none":
        return None
    if text.lower() != "last":
        return int(text)
    mine = os.sched_getaffinity(0)
    # Ranks that are not bound would all have the same last core.
    return max(mine) if len(mine) < (os.cpu_count() or 1) else None


# A variable that is set overrides the argument: it is for whoever runs the program.
ENVIRONMENT: dict[str, tuple[str, Callable[[str], object]]] = {
    "WAGMA_TRANSPORT": ("transport", str),
    "WAGMA_STALL_WARNING": ("stall_warning", _number),
    "WAGMA_REDO_AFTER": ("redo_after", float),
    "WAGMA_SHM_LIMIT": ("shm_limit", int),
    "WAGMA_PROGRESS": ("progress", str),
    "WAGMA_PROGRESS_CPU": ("progress_cpu", _core),
}

SHORTEST_WARNING_S = 0.1  # nobody reads faster

# What a rank chooses for itself: the others may have chosen otherwise.
OWN = ("progress", "progress_cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the ranks of a collective have to agree on, beside the array's shape and dtype.

    In `progress` and `progress_cpu` they may differ.

    Attributes:
        group_size: maximum members of a group, 1 to the number of ranks; None: all ranks, or 2 with
            grouping="pairs" (which takes no other number).
        quorum: members of a version's scope that start it; the scope is the group, or all ranks
            with activation="world". An int from 1 to the scope's size (capped where a group is
            smaller than group_size); "all": every member, nobody is late; "majority": one member,
            drawn from (seed, version, group) among those not departed, has to be there, so that
            half of the others are as well, on average.
        grace: seconds that a version is held open for recent members once the quorum is present;
            "auto": measured, at least 50 us.
        late: what becomes of a rank that comes after its version was pinned.
            "stale": its newest contribution of an earlier version is in the result, and it merges
            its own array with that result. For models. Gradients are allowed, but then old
            gradients are averaged, at full weight and perhaps several times: prefer "carry".
            "skip": the version has nothing of it. "carry": the same, and what was left out is
            added to its next contribution. With both no result is lost: every rank gets all of
            them in order, each once (`Outcome.results`).
        missed: what a late rank makes of several missed versions. "once": it merges the newest
            result and calls the missed versions all the same. "fast-forward": it goes on with the
            version after that result, never past a sync version (`Outcome.skipped` counts what it
            left out; what others have of it until its next call is from before the jump, up to
            2 window + 1 versions old, instead of window + 1). Refused with late="skip" and
            "carry", which deliver every result.
        activation: whose quorum starts a version. "group": each group's own. "world": that of all
            ranks, which pins the contributions of all groups at once, as in the paper (Algorithm
            2). Refused with late="skip" and "carry" unless the group is the world.
        grouping: how groups follow from the version. "dynamic": they change so that updates spread
            fastest, see `topology.groups`; "fixed": those of version 0; "pairs": two ranks each,
            drawn from (seed, version).
        sync_period: version t is a sync version when (t+1) % sync_period == 0; None: never.
        average: whether results are divided by the sum of the weights.
        window: versions that a rank may be ahead of the slowest (with transport="mpi" and window=1
            it is 2); None: sync_period, 64 without one, 8 with late="skip" and "carry": so many
            results are kept.
        transport: "shm": the ranks share memory on one node. "mpi": they send messages, and may be
            on any nodes. "auto": "shm" where all are on one node, otherwise "mpi".
        timeout: seconds until a wait ends in StallError; None: never.
        stall_warning: seconds between warnings about a stuck wait, a tenth at least; None: no
            warnings.
        seed: of the draws of quorum="majority" and grouping="pairs", 0 to 2**64 - 1.
        name: shown in warnings and by repr; None: no name.
        shm_limit: bytes of shared memory per rank; None: as many as the protocol can use. An array
            of 1 to 2 MiB takes 2 MiB.
        redo_after: seconds until the work of a stopped rank is done by another; None: 200e-6.
        progress: with transport="mpi", who takes part in versions while a rank computes or sleeps.
            A thread of its own, which polls hard while a version is in flight, and in between
            "spin": as well; "yield": leaves the core to others in between; "sleep:US": every US
            microseconds, 10 to 1000000: that is how much longer others may wait for a rank that
            computes, and the more it is the less of a core it costs. "main": no thread; a rank
            takes part in its calls only, and makes others wait for it.
        progress_cpu: the core to which that thread is bound, which should not be one that computes;
            None: any.
    """

    group_size: SupportsIndex | None = None
    quorum: Quorum = "all"
    grace: SupportsFloat | Literal["auto"] = "auto"
    late: Late = "stale"
    missed: Missed = "once"
    activation: Activation = "group"
    grouping: Grouping = "dynamic"
    sync_period: SupportsIndex | None = None
    average: bool = True
    window: SupportsIndex | None = None
    transport: Transport = "auto"
    timeout: SupportsFloat | None = None
    stall_warning: SupportsFloat | None = 60.0
    seed: SupportsIndex = 0
    name: str | None = None
    shm_limit: SupportsIndex | None = None
    redo_after: SupportsFloat | None = None
    progress: str = "sleep:1000"
    progress_cpu: SupportsIndex | None = None

    def with_environment(self, environ: Mapping[str, str] = os.environ) -> Options:
        """These options with those that the environment sets instead.

        Raises:
            ValueError: a variable does not hold what its option takes.
        """
        changes: dict[str, Any] = {}
        for variable, (option, convert) in ENVIRONMENT.items():
            text = environ.get(variable)
            if text is None:
                continue
            told = f"{variable}={text!r} in the environment"
            try:
                changes[option] = convert(text)
            except ValueError:
                raise ValueError(
                    f"{told} is not a number: it sets the option {option}; give it one, or unset "
                    f"{variable}"
                ) from None
            try:  # alone, so that no argument is to blame
                check_options(Options(**{option: changes[option]}).engine(1, 0, 0))
            except ValueError as error:
                raise ValueError(f"{told}: {error}") from None
        return replace(self, **changes)

    def engine(
        self, size: int, count: int, dtype: int, *, quorum: str = "quorum"
    ) -> dict[str, int | float]:
        """The engine's wagma_options for `size` ranks and arrays of `count` elements.

        Args:
            size: number of ranks.
            count: of the array's elements.
            dtype: their code.
            quorum: what the user calls that option; one of another name takes numbers only.

        Raises:
            TypeError, ValueError: an option has a value of the wrong type, one that it does not
                know, or one that does not go with another's. What is left is for the engine.
        """
        _check_word("transport", self.transport, _TRANSPORTS)
        check_switch("average", self.average)
        options: dict[str, int | float] = {
            "size": size,
            "count": count,
            "dtype": dtype,
            "average": int(self.average),
            "group_size": _positive("group_size", self.group_size, default=0),
            "quorum": _quorum(quorum, self.quorum),
            "sync_period": _positive("sync_period", self.sync_period, default=0),
            "window": _positive("window", self.window, default=0),
            "shm_limit": _positive("shm_limit", self.shm_limit, default=0),
            "seed": _seed(self.seed),
            "grace": _seconds("grace", None if self.grace == "auto" else self.grace),
            "timeout": _seconds("timeout", self.timeout),
            "stall_warning": _between_warnings(self.stall_warning),
        }
        for option, known in _CHOICES.items():
            options[option] = choice(option, getattr(self, option), known)
        if self.redo_after is not None:
            options["redo_after"] = _seconds("redo_after", self.redo_after)
        options |= _progress(self.progress) | {"progress_cpu": _cpu(self.progress_cpu)}
        group_size = self._check_groups(size, int(options["group_size"]))
        self._check_start(size, group_size, int(options["quorum"]), quorum)
        self._check_late(size, group_size)
        element = arrays.dtype_of_code(dtype)
        if self.average and element.storage.kind == "i":
            raise TypeError(
                f"average=True and dtype {element.name}: integers are only summed, "
                "pass average=False"
            )
        return options

    def _check_groups(self, size: int, group_size: int) -> int:
        """The members of a group; `group_size` is 0 for None."""
        pair = min(size, 2)
        if self.grouping == "pairs" and group_size not in (0, pair):
            raise ValueError(
                f"group_size={group_size} and grouping='pairs': leave group_size out, or pass "
                f"{pair}"
            )
        if group_size > size:
            raise ValueError(f"group_size={group_size} must be 1 to {size}, the number of ranks")
        return group_size or (pair if self.grouping == "pairs" else size)

    def _check_start(self, size: int, group_size: int, quorum: int, name: str) -> None:
        most = size if self.activation == "world" else group_size
        if quorum > most:
            scope = "the number of ranks" if most == size else "the members of a group"
            words = f", {_alternatives(_QUORUMS)}" if name == "quorum" else ""
            raise ValueError(f"{name}={quorum} must be 1 to {most} ({scope}){words}")

    def _check_late(self, size: int, group_size: int) -> None:
        if self.late == "stale":
            return
        if self.missed != "once":
            raise ValueError(
                f"missed={self.missed!r} and late={self.late!r}, which delivers every result: "
                "pass missed='once', or late='stale'"
            )
        if self.activation == "world" and group_size != size:
            raise ValueError(
                f"activation='world', late={self.late!r} and group_size={group_size}: pass "
                f"activation='group', or group_size={size}, the number of ranks"
            )


class WorldArguments(TypedDict, total=False):
    """Keyword arguments of collectives whose group is the world: no groups and no quorum."""

    grace: SupportsFloat | Literal["auto"]
    late: Late
    missed: Missed
    sync_period: SupportsIndex | None
    average: bool
    window: SupportsIndex | None
    transport: Transport
    timeout: SupportsFloat | None
    stall_warning: SupportsFloat | None
    seed: SupportsIndex
    name: str | None
    shm_limit: SupportsIndex | None
    redo_after: SupportsFloat | None
    progress: str
    progress_cpu: SupportsIndex | None


class CommonArguments(WorldArguments, total=False):
    """Keyword arguments of every collective with groups: `Options` but group_size and quorum."""

    activation: Activation
    grouping: Grouping


class Arguments(CommonArguments, total=False):
    """Keyword arguments of `PartialAllreduce`: the fields of `Options`."""

    group_size: SupportsIndex | None
    quorum: Quorum


def _alternatives(values: Iterable[str]) -> str:
    """'a', 'b' or 'c'."""
    *others, last = map(repr, values)
    return f"{', '.join(others)} or {last}"


def check_switch(name: str, value: object) -> None:
    """Check that `value` is True or False; raise TypeError where it is not."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be True or False")


def _check_word(name: str, value: Any, known: Iterable[str]) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r} must be {_alternatives(known)}")
    if value not in known:
        raise ValueError(f"{name}={value!r} must be {_alternatives(known)}")


def choice(name: str, value: Any, known: Mapping[str, int]) -> int:
    _check_word(name, value, known)
    return known[value]


def _progress(value: Any) -> dict[str, int | float]:
    """What the engine takes for "spin", "yield", "sleep:US" or "main"."""
    if not isinstance(value, str) or not value.startswith(_SLEEP):
        _check_word("progress", value, _PROGRESS)
        return {"progress": PROGRESS[value]}
    micros = value.removeprefix(_SLEEP)
    if not (micros.isascii() and micros.isdecimal() and 10 <= int(micros) <= 1_000_000):
        raise ValueError(
            f"progress={value!r}: the microseconds after {_SLEEP!r} must be 10 to 1000000, as in "
            "'sleep:1000'"
        )
    return {"progress": PROGRESS["sleep"], "progress_sleep": int(micros) / 1e6}


def _cpu(value: Any) -> int:
    """The number of a core; -1 is what the engine takes for None."""
    if value is None:
        return -1
    number = integer("progress_cpu", value)
    if number < 0:
        raise ValueError(f"progress_cpu={number} must be the number of a core, or None for any")
    return number


def _quorum(name: str, value: Any) -> int:
    """What the engine takes for a number of members, "all" or "majority"."""
    if isinstance(value, str) and name == "quorum":
        if value not in _QUORUMS:
            raise ValueError(f"quorum={value!r} must be an int, {_alternatives(_QUORUMS)}")
        return _QUORUMS[value]
    return _positive(name, integer(name, value), default=0)


def _seed(value: Any) -> int:
    number = integer("seed", value)
    if not 0 <= number < 2**64:
        raise ValueError(f"seed={number} must be 0 to 2**64 - 1")
    return number


def integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} must be an int") from None


def _positive(name: str, value: SupportsIndex | str | None, *, default: int) -> int:
    """An int >= 1; `default` is what the engine takes for None."""
    if value is None:
        return default
    number = integer(name, value)
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


def _between_warnings(value: SupportsFloat | str | None) -> float:
    seconds = _seconds("stall_warning", value)
    if 0 <= seconds < SHORTEST_WARNING_S:
        raise ValueError(
            f"stall_warning={seconds:g} must be {SHORTEST_WARNING_S} seconds or more, or None for "
            "no warnings"
        )
    return seconds
