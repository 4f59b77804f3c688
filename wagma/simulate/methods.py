"""The methods that `wagma bench training` and `wagma simulate` know: names and parameters. Pure.

A method is a row of choices: what is averaged with which ranks, how many of them have to arrive,
and what becomes of a late rank (see `wagma.collectives.Options`). Names with a number, such as
local10, are those with the number in them.
"""

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsIndex, cast

from wagma.collectives._engine import MAX_NEIGHBORS
from wagma.inject.checks import as_number, check_count
from wagma.theory.checks import check_time
from wagma.theory.ksync.methods import default_window

NAMES = (
    *("wagma", "wagma-ff", "wagma-nosync", "wagma-fixed", "wagma-world", "wagma-small"),
    *("allreduce", "local1", "local10", "dpsgd", "sgp1", "sgp2", "sgp4"),
    *("eager-majority", "eager-solo", "adpsgd", "fastest-k", "ddp"),
)
STOPPING = ("dropcompute", "dropcompute-preempt", "dropcompute-local10", "anytime")
# Names with a number, in words.
NUMBERED = (
    "allreduce-bucketsN (of N KiB), localN, dilocoN, diloco-overlapN, diloco-groupsN and "
    "dropcompute-localN with any N, ksyncN and kasyncN with N from 1 to P, k-syncN, k-asyncN, "
    "k-batch-syncN and k-batch-asyncN with N "
    f"from 1 to P - 1, sgpN with N up to {MAX_NEIGHBORS}"
)
_NUMBERED = re.compile(
    r"(allreduce-buckets|dropcompute-local|local|diloco|diloco-overlap|diloco-groups|sgp|ksync|kasync|"
    r"k-sync|k-async|k-batch-sync|k-batch-async)([1-9][0-9]{0,5})"
)
SIMULATED_ONLY = ("cannikin",)  # `wagma bench heterogeneous` measures it
MEASURED_ONLY = ("auto",)  # it chooses among methods by simulating these
METHODS = (*NAMES, *STOPPING, *SIMULATED_ONLY)

# The window where there are no synchronisations, and that of gradients, see `Options.window`.
WINDOW, WINDOW_OF_INCREMENTS = 64, 8

Kind = Literal["groups", "ordered", "graph", "server"]


def numbered(name: str) -> tuple[str, int] | None:
    """Return a name with a number in two parts; None: the name has none, or there is no such."""
    found = _NUMBERED.fullmatch(name)
    if found is None or (found[1] == "sgp" and int(found[2]) > MAX_NEIGHBORS):
        return None
    return found[1], int(found[2])


@dataclass(frozen=True)
class Method:
    """A method with its parameters; those that its `kind` does not use have no meaning.

    Attributes:
        name: as in `METHODS`.
        kind: "groups": each version is averaged in groups. "ordered": every rank gets every update,
            in order. "graph": neighbours. "server": a parameter server, which is the last rank.
        group_size: most ranks of a group; None: `default_group_size`; math.inf: all ranks.
        grouping: as `Options.grouping`.
        quorum: arrivals that start a version: a number, "all", or "majority".
        grace: seconds for which a version stays open then, or "auto".
        late: of "ordered": "carry", "skip", or "keep", the rule of K-async.
        missed: as `Options.missed`.
        activation: as `Options.activation`.
        sync_period: versions from one synchronisation to the next; None: none.
        window: versions that a rank may be ahead of the slowest; None: the library's default.
        period: versions from one average to the next (Local SGD, DiLoCo in groups).
        overlap: whether a synchronisation is used one period later.
        graph: "ring" or "exponential".
        neighbors: of "exponential": out-neighbours.
        server: of "server": a name of `wagma.theory.ksync.METHODS`.
        stop: what ends a step beside its micro-batches: "between" or "preempt" at the threshold
            (DropCompute); "threshold": the threshold alone (Anytime Minibatch).
        stop_period: steps whose computing the threshold bounds.
        threshold: seconds; "auto": chosen from the first steps by the library.
        calibration_steps: these first steps.
        bucket_bytes: of gradients that are averaged while backward computes; None: none are.
        algorithm: of all ranks' averages: "fastest" of the library's, or "ring".
        uneven: whether ranks get batches that take equally long (Cannikin).
    """

    name: str
    kind: Kind = "groups"
    group_size: float | None = 1
    grouping: str = "dynamic"
    quorum: int | str = 1
    grace: float | str = "auto"
    late: str = "carry"
    missed: str = "once"
    activation: str = "group"
    sync_period: int | None = None
    window: int | None = None
    period: int = 1
    overlap: bool = False
    graph: str = "ring"
    neighbors: int = 1
    server: str = "k-sync"
    stop: str | None = None
    stop_period: int = 1
    threshold: float | str = "auto"
    calibration_steps: int = 10
    bucket_bytes: int | None = None
    algorithm: str = "fastest"
    uneven: bool = False

    @property
    def averages_models(self) -> bool:
        """Whether the ranks' models differ between averages."""
        return self.kind == "graph" or (self.kind == "groups" and self.sync_period != 1)

    def least_ranks(self) -> int:
        """Return the fewest ranks with which the method works."""
        if self.kind == "server":
            return int(self.quorum) + 1
        if self.kind == "ordered" and not isinstance(self.quorum, str):
            return self.quorum
        return self.neighbors + 1 if self.kind == "graph" and self.neighbors > 1 else 1

    def default_window(self, size: int) -> int:
        """Return the versions that a rank may be ahead of the slowest of `size` ranks."""
        if self.window is not None:
            return self.window
        if self.kind == "ordered":
            if self.late == "carry":
                return WINDOW_OF_INCREMENTS
            return default_window(size, int(self.quorum))
        return self.sync_period or WINDOW


_WAGMA = Method("wagma", group_size=None, sync_period=10)
_ALLREDUCE = Method("allreduce", sync_period=1)
_EAGER = Method("eager-solo", "ordered")
_KSYNC = Method("ksync", "ordered", grace=0.0, late="skip")
_GROUPED = ("group_size", "sync_period", "window", "grace", "quorum", "activation", "missed")
_STOPPED = ("threshold", "calibration_steps")

# Each name's method, and the options that may be given.
_MADE: dict[str, tuple[Method, tuple[str, ...]]] = {
    "wagma": (_WAGMA, (*_GROUPED, "grouping")),
    "wagma-ff": (replace(_WAGMA, missed="fast-forward"), (*_GROUPED, "grouping")),
    "wagma-nosync": (replace(_WAGMA, sync_period=None), (*_GROUPED, "grouping")),
    "wagma-fixed": (replace(_WAGMA, grouping="fixed"), _GROUPED),
    "wagma-world": (replace(_WAGMA, group_size=math.inf), _GROUPED),
    "wagma-small": (replace(_WAGMA, group_size=2), _GROUPED),
    "allreduce": (_ALLREDUCE, ("algorithm", "bucket_bytes")),
    "ddp": (replace(_ALLREDUCE, algorithm="ring", bucket_bytes=25 << 20), ("bucket_bytes",)),
    "cannikin": (replace(_ALLREDUCE, uneven=True), ("calibration_steps",)),
    "dpsgd": (Method("dpsgd", "graph"), ()),
    "adpsgd": (Method("adpsgd", group_size=2, grouping="pairs"), ("grace", "window")),
    "eager-solo": (_EAGER, ("grace", "window")),
    "eager-majority": (replace(_EAGER, quorum="majority"), ("grace", "window")),
    "fastest-k": (_KSYNC, ("quorum", "window")),
    "dropcompute": (replace(_ALLREDUCE, stop="between"), _STOPPED),
    "dropcompute-preempt": (replace(_ALLREDUCE, stop="preempt"), _STOPPED),
    "anytime": (replace(_ALLREDUCE, stop="threshold"), _STOPPED[:1]),
}


def _numbered(base: str, number: int) -> tuple[Method, tuple[str, ...]]:
    """Return what a name with a number stands for."""
    local = Method(base, sync_period=number)
    if base == "sgp":
        return Method(base, "graph", graph="exponential", neighbors=number), ()
    if base == "allreduce-buckets":
        return replace(_ALLREDUCE, bucket_bytes=number << 10), ("algorithm",)
    if base == "dropcompute-local":
        return replace(local, stop="between", stop_period=number), _STOPPED
    if base == "diloco-groups":
        # At most 64 periods apart.
        grouped = replace(_WAGMA, sync_period=None, period=number, window=WINDOW)
        return grouped, ("group_size", "window", "grace")
    if base in ("local", "diloco", "diloco-overlap"):
        return replace(local, overlap=base == "diloco-overlap"), ()
    if base in ("ksync", "kasync"):
        late = "skip" if base == "ksync" else "keep"
        return replace(_KSYNC, quorum=number, late=late), ("window",)
    return Method(base, "server", quorum=number, server=base), ()


def method(name: str, **options: Any) -> Method:
    """Return a method by its name, one of `METHODS` or a name with a number such as local5.

    Args:
        name: of the method.
        options: parameters of `Method` that the method has; others keep the library's defaults.

    Raises:
        ValueError: there is no such method or option, or an option has a wrong value.
        TypeError: an option is of a wrong type.
    """
    if (found := numbered(name)) is not None:
        made, allowed = _numbered(*found)
    elif name in _MADE:
        made, allowed = _MADE[name]
    elif name in MEASURED_ONLY:
        raise ValueError(
            f"{name} is not simulated: it trains as allreduce or as wagma, whichever is predicted "
            "to be faster; simulate these, or leave it out"
        )
    else:
        raise ValueError(f"unknown method {name!r}: choose from {', '.join(METHODS)}; {NUMBERED}")
    for option, value in options.items():
        if option not in allowed:
            known = f"options are {', '.join(allowed)}" if allowed else "it has no options"
            raise ValueError(f"{name} has no option {option!r}: {known}")
        options[option] = _checked(option, value)
    return replace(made, name=name, **options)


_WORDS = {
    "grouping": ("dynamic", "fixed"),
    "missed": ("once", "fast-forward"),
    "activation": ("group", "world"),
    "algorithm": ("fastest", "ring"),
}
_ABSENT = ("sync_period", "window", "group_size", "bucket_bytes")  # may be None


def _checked(option: str, value: Any) -> Any:
    """Return an option's value; raise ValueError or TypeError."""
    if option in _WORDS:
        if value not in _WORDS[option]:
            known = " or ".join(map(repr, _WORDS[option]))
            raise ValueError(f"{option}={value!r} must be {known}")
        return value
    if value is None and option in _ABSENT:
        return None
    if option in ("grace", "threshold"):
        if value == "auto":
            return value
        if isinstance(value, str):
            raise ValueError(f'{option}={value!r} must be "auto", or a number of seconds')
        if option == "threshold" and as_number(option, value) == math.inf:
            return math.inf
        return check_time(option, cast(float, value), positive=option == "threshold")
    if option == "quorum" and value in ("all", "majority"):
        return value
    if option == "group_size" and value == math.inf:
        return value
    return check_count(option, cast(SupportsIndex, value), 1)
