"""Options of a collective, as users pass them, and their conversion for the engine.

Each option is one field here: its type, default, conversion (option_values.py) and variable of the
environment. Values that Python spells differently from C ("all", "auto", "carry", None) are checked
here, so that messages show what the user wrote. The engine checks the other ranges.
"""

# ruff: noqa: RUF009 - option() makes a field
from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import Parameter, signature
from typing import Any, Literal, Self, SupportsFloat, SupportsIndex, TypeAlias, TypedDict, TypeVar

from . import arrays
from . import option_values as values
from ._engine import ACTIVATIONS, GROUPINGS, LATE, MISSED, check_options
from .option_values import Convert

F = TypeVar("F", bound=Callable[..., None])

Quorum: TypeAlias = SupportsIndex | Literal["all", "majority"]
Late: TypeAlias = Literal["stale", "skip", "carry"]
Missed: TypeAlias = Literal["once", "fast-forward"]
Activation: TypeAlias = Literal["group", "world"]
Grouping: TypeAlias = Literal["dynamic", "fixed", "pairs"]
Transport: TypeAlias = Literal["auto", "shm", "mpi"]
Memory: TypeAlias = Literal["auto", "direct", "staged"]

# Options that may differ between ranks.
OWN = ("progress", "progress_cpu")


def option(
    default: Any,
    convert: Convert,
    variable: str | None = None,
    read: Callable[[str], object] | None = None,
) -> Any:
    """Return a dataclass field for an option.

    Args:
        default: the option's default.
        convert: checks the option and returns the engine's value, see `option_values`.
        variable: environment variable that overrides the argument, for the user who runs the
            program.
        read: converts the text of that variable to a value of the option.
    """
    return field(default=default, metadata={"convert": convert, "variable": variable, "read": read})


@dataclass(frozen=True, kw_only=True, slots=True)
class CommonOptions:
    """Options of every collective; `Options` describes them."""

    average: bool = option(True, values.switch)
    transport: Transport = option("auto", values.word("auto", "shm", "mpi"), "WAGMA_TRANSPORT", str)
    memory: Memory = option("auto", values.word("auto", "direct", "staged"), "WAGMA_MEMORY", str)
    timeout: SupportsFloat | None = option(None, values.seconds(none=-1.0))
    stall_warning: SupportsFloat | None = option(
        60.0, values.warning_interval, "WAGMA_STALL_WARNING", values.number_in_text
    )
    name: str | None = None
    shm_limit: SupportsIndex | None = option(None, values.positive, "WAGMA_SHM_LIMIT", int)
    progress: str = option("sleep:1000", values.progress, "WAGMA_PROGRESS", str)
    progress_cpu: SupportsIndex | None = option(
        None, values.core, "WAGMA_PROGRESS_CPU", values.core_in_text
    )

    @classmethod
    def of(cls, arguments: Mapping[str, Any], collective: str) -> Self:
        """Return the options that a user passed to `collective`.

        Raises:
            TypeError: an argument is no option.
        """
        known = [each.name for each in fields(cls)]
        for name in arguments:
            if name not in known:
                raise TypeError(
                    f"{collective} has no option {name!r}; options are {', '.join(known)}"
                )
        return cls(**arguments)

    def with_environment(self, environ: Mapping[str, str] = os.environ) -> Self:
        """Return these options, with the values that the environment sets.

        Raises:
            ValueError: a variable does not hold what its option takes.
        """
        changes: dict[str, Any] = {}
        for variable, (name, read) in ENVIRONMENT.items():
            text = environ.get(variable)
            if text is None:
                continue
            setting = f"{variable}={text!r} in the environment"
            try:
                value = read(text)
            except ValueError:
                raise ValueError(
                    f"{setting} is not a number: it sets the option {name}; give it one, or unset "
                    f"{variable}"
                ) from None
            try:  # the value alone: an error must not blame an argument
                check_options(Options(**{name: value}).engine(1, 0, 0))
            except ValueError as error:
                raise ValueError(f"{setting}: {error}") from None
            if hasattr(self, name):
                changes[name] = value
        return replace(self, **changes)

    def engine(
        self, size: int, count: int, dtype: int, *, quorum: str = "quorum"
    ) -> dict[str, int | float]:
        """Return the engine's wagma_options for `size` ranks and arrays of `count` elements.

        Args:
            size: number of ranks.
            count: number of the array's elements.
            dtype: code of their type.
            quorum: the user's name of that option; options of other names take numbers only.

        Raises:
            TypeError, ValueError: an option has a value of the wrong type, an unknown value, or
                one that contradicts another option. The engine checks the rest.
        """
        options: dict[str, int | float] = {"size": size, "count": count, "dtype": dtype}
        for each in fields(self):
            if "convert" not in each.metadata:
                continue
            shown = quorum if each.name == "quorum" else each.name
            value = each.metadata["convert"](shown, getattr(self, each.name))
            if isinstance(value, dict):
                options |= value
            elif value is not None:
                options[each.name] = value
        return options


@dataclass(frozen=True, kw_only=True, slots=True)
class Options(CommonOptions):
    """Options of a collective; equal on all ranks except `progress` and `progress_cpu`.

    Attributes:
        group_size: maximum number of members of a group, 1 to the number of ranks; None: all ranks,
            or 2 with grouping="pairs" (which accepts no other number).
        quorum: number of members whose arrival starts a version. They are counted in the version's
            scope: the group, or all ranks with activation="world". An int from 1 to the scope's
            size (capped for groups smaller than group_size); "all": every member, so that no rank
            is late; "majority": one particular member, drawn from (seed, version, group) among
            those not departed. On average half of the others arrive before it.
        grace: seconds that a version stays open for recent members once the quorum is present;
            "auto": measured, at least 50 us.
        late: rule for a rank that arrives after its version was pinned.
            "stale": the result holds its newest contribution of an earlier version, and the rank
            merges its own array with that result. For models. Gradients are allowed, but then old
            gradients are averaged at full weight, perhaps several times: prefer "carry".
            "skip": the result holds no contribution of the rank. "carry": likewise, and the engine
            adds the omitted array to the rank's next contribution. With "skip" and "carry" no
            result is lost: every rank gets all results in order, each once (`Outcome.results`).
        missed: rule for a late rank that missed several versions. "once": it merges the newest
            result, and still calls the missed versions. "fast-forward": it continues with the
            version after that result, but never jumps over a sync version; `Outcome.skipped` counts
            the versions jumped over. Until its next call the others use its contribution from
            before the jump, which is up to 2 window + 1 versions old instead of window + 1. Refused
            with late="skip" and "carry", which deliver every result.
        activation: scope of the quorum. "group": each group starts its own version. "world": the
            quorum of all ranks pins the contributions of all groups at once, as in the paper
            (Algorithm 2). Refused with late="skip" and "carry" unless the group is the world.
        grouping: how groups depend on the version. "dynamic": they change so that updates spread
            fastest, see `topology.groups`; "fixed": always the groups of version 0; "pairs": two
            ranks each, drawn from (seed, version).
        sync_period: version t is a sync version when (t+1) % sync_period == 0; None: never.
        average: whether results are divided by the sum of the weights.
        window: number of versions that a rank may be ahead of the slowest one (2 with
            transport="mpi" and window=1). None: sync_period, or 64 without one; 8 with late="skip"
            and "carry", which keep that many results.
        transport: "shm": shared memory on one node. "mpi": messages, between any nodes. "auto":
            "shm" if all ranks are on one node, otherwise "mpi".
        memory: where contributions and results of arrays on GPUs are; of no effect for arrays in
            host memory. "direct": on the GPUs, if ranks of one node reach each other's GPUs.
            "staged": in host memory, through which the engine copies. "auto": "direct" where it is
            possible, otherwise "staged".
        timeout: seconds until a wait raises StallError; None: never.
        stall_warning: seconds between warnings about a long wait, 0.1 or more; None: no warnings.
        seed: seed of the draws of quorum="majority" and grouping="pairs", 0 to 2**64 - 1.
        name: shown in warnings and by repr; None: no name.
        shm_limit: bytes of shared memory per rank; None: as many as the protocol can use. An array
            of 1 to 2 MiB takes 2 MiB.
        redo_after: seconds until another rank repeats the work of a stopped rank, 1e-3 at least in
            a GPU's memory; None: 200e-6.
        progress: with transport="mpi", how a rank takes part in versions while it computes or
            sleeps. A progress thread polls without pause while a version is active. Between
            versions "spin" polls likewise; "yield" yields the core between polls; "sleep:US" polls
            every US microseconds, 10 to 1000000. Others may wait that much longer for a rank that
            computes; a longer interval costs less of a core. "main": no thread; a rank takes part
            during its own calls only, and others wait for it.
        progress_cpu: core of the progress thread, preferably one that does not compute; None: any.
    """

    group_size: SupportsIndex | None = option(None, values.positive)
    quorum: Quorum = option("all", values.quorum)
    grace: SupportsFloat | Literal["auto"] = option("auto", values.auto_seconds)
    late: Late = option("stale", values.choice(LATE))
    missed: Missed = option("once", values.choice(MISSED))
    activation: Activation = option("group", values.choice(ACTIVATIONS))
    grouping: Grouping = option("dynamic", values.choice(GROUPINGS))
    sync_period: SupportsIndex | None = option(None, values.positive)
    window: SupportsIndex | None = option(None, values.positive)
    seed: SupportsIndex = option(0, values.seed)
    redo_after: SupportsFloat | None = option(
        None, values.seconds(none=None), "WAGMA_REDO_AFTER", float
    )

    def engine(
        self, size: int, count: int, dtype: int, *, quorum: str = "quorum"
    ) -> dict[str, int | float]:
        """Convert the options for the engine; see `CommonOptions.engine`."""
        options = CommonOptions.engine(self, size, count, dtype, quorum=quorum)
        group_size = self._check_groups(size, int(options["group_size"]))
        self._check_quorum(size, group_size, int(options["quorum"]), quorum)
        self._check_late(size, group_size)
        element = arrays.dtype_of_code(dtype)
        if self.average and element.storage.kind == "i":
            raise TypeError(
                f"average=True and dtype {element.name}: integers are only summed, "
                "pass average=False"
            )
        return options

    def _check_groups(self, size: int, group_size: int) -> int:
        """Return the number of members of a group; `group_size` is 0 for None."""
        pair = min(size, 2)
        if self.grouping == "pairs" and group_size not in (0, pair):
            raise ValueError(
                f"group_size={group_size} and grouping='pairs': leave group_size out, or pass "
                f"{pair}"
            )
        if group_size > size:
            raise ValueError(f"group_size={group_size} must be 1 to {size}, the number of ranks")
        return group_size or (pair if self.grouping == "pairs" else size)

    def _check_quorum(self, size: int, group_size: int, quorum: int, name: str) -> None:
        most = size if self.activation == "world" else group_size
        if quorum > most:
            scope = "the number of ranks" if most == size else "the members of a group"
            words = f", {values.alternatives(values.QUORUMS)}" if name == "quorum" else ""
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


def with_keywords(options: type[CommonOptions]) -> Callable[[F], F]:
    """Return a decorator for a constructor whose `**options` are the fields of `options`.

    Its signature, and so help(), shows each of them with its default. Type checkers know them from
    the TypedDict.
    """
    common = {each.name for each in fields(CommonOptions)}
    keywords = [
        Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
        for each in sorted(fields(options), key=lambda each: each.name in common)
    ]

    def decorate(constructor: F) -> F:
        shown = signature(constructor)
        *own, _ = shown.parameters.values()
        constructor.__signature__ = shown.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        return constructor

    return decorate


# Environment variables: the option that each sets, and the function that reads its text.
ENVIRONMENT: dict[str, tuple[str, Callable[[str], Any]]] = {
    each.metadata["variable"]: (each.name, each.metadata["read"])
    for each in fields(Options)
    if each.metadata.get("variable")
}


class SharedArguments(TypedDict, total=False):
    """Keyword arguments of every collective: the fields of `CommonOptions`."""

    average: bool
    transport: Transport
    memory: Memory
    timeout: SupportsFloat | None
    stall_warning: SupportsFloat | None
    name: str | None
    shm_limit: SupportsIndex | None
    progress: str
    progress_cpu: SupportsIndex | None


class WorldArguments(SharedArguments, total=False):
    """Keyword arguments of collectives whose group is the world: no groups and no quorum."""

    grace: SupportsFloat | Literal["auto"]
    late: Late
    missed: Missed
    sync_period: SupportsIndex | None
    window: SupportsIndex | None
    seed: SupportsIndex
    redo_after: SupportsFloat | None


class CommonArguments(WorldArguments, total=False):
    """Keyword arguments of every collective with groups: `Options` but group_size and quorum."""

    activation: Activation
    grouping: Grouping


class Arguments(CommonArguments, total=False):
    """Keyword arguments of `PartialAllreduce`: the fields of `Options`."""

    group_size: SupportsIndex | None
    quorum: Quorum
