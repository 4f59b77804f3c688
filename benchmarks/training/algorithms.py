"""The algorithms that are compared: their names, what they are made of, and whom they wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wagma.simulate.methods import (
    MEASURED_ONLY,
    NAMES,
    NUMBERED,
    STOPPING,
    Method,
    method,
    numbered,
)

from . import stopping

if TYPE_CHECKING:
    from mpi4py import MPI

    from wagma.algorithms import Algorithm
    from wagma.inject import Delays
    from wagma.training.policies.base import ComputePolicy

    from .settings import Settings

ALL = (*NAMES, *STOPPING, *MEASURED_ONLY)  # without those with a number in the name
DEFAULT = ("wagma", "allreduce", "local10", "dpsgd", "sgp1", "eager-majority", "adpsgd")


@dataclass(frozen=True)
class Compared:
    """One algorithm."""

    name: str  # on the command line
    label: str  # in tables and pictures
    # name of its class in `wagma`, or what makes one, given `comm`
    home: str | Callable[..., Algorithm]
    options: dict[str, Any]  # of the class, beside `comm` and `transport`
    rule: Method | None  # which ranks its calls wait for, without grace; None: not known
    least_ranks: int = 1  # that it needs
    stop: stopping.Stop | None = None  # what ends a step, beside its micro-batches
    by_ddp: bool = False  # PyTorch averages the gradients, and what `home` makes nothing

    def check(self, comm: MPI.Intracomm) -> None:
        """Check that what somebody else has written makes an algorithm; local.

        Raises:
            ValueError: it does not.
        """
        from wagma.algorithms import Algorithm
        from wagma.training.policies.base import ComputePolicy

        if isinstance(self.home, str):
            return
        try:
            made: object = self.home(comm)
        except Exception as error:
            raise ValueError(
                f"--algorithms {self.name} cannot be made ({type(error).__name__}: {error}): it is "
                "called with comm alone"
            ) from error
        kind = type(made).__name__
        if isinstance(made, ComputePolicy):
            raise ValueError(
                f"--algorithms {self.name} returns a {kind}, and steps of somebody's own algorithm "
                "are not stopped: return the algorithm that averages, or give one of "
                f"{', '.join(STOPPING)}"
            )
        if not isinstance(made, Algorithm):
            raise ValueError(
                f"--algorithms {self.name} returns a {kind}: it has to return an object of a class "
                "over wagma.Algorithm"
            )

    def make(
        self, comm: MPI.Intracomm, settings: Settings, delays: Delays
    ) -> Algorithm | ComputePolicy:
        """Return a fresh one, with the delays of every micro-batch; collective."""
        import wagma

        if not isinstance(self.home, str):
            return self.home(comm)
        made: Algorithm = getattr(wagma, self.home)(
            comm, transport=settings.transport, **self.options
        )
        if self.stop is None:
            return made
        return stopping.stop_at_threshold(made, self.stop, settings, delays)


def check_name(name: str) -> str:
    """Return the name of an algorithm, or "package.module:Class".

    Raises:
        ValueError: there is none of that name.
    """
    if ":" in name:
        _load(name)
        return name
    if name in ALL or numbered(name):
        return name
    raise ValueError(
        f"unknown algorithm {name!r}: choose from {', '.join(ALL)}; "
        f"{NUMBERED}; or package.module:Class of your own"
    )


def _load(path: str) -> Callable[..., Algorithm]:
    """Return what "package.module:Class" names.

    Raises:
        ValueError: it is not there, or cannot be called.
    """
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path!r} cannot be imported ({error}): name a class or function that takes comm and "
            "returns an algorithm, as package.module:Class, in a folder of PYTHONPATH"
        ) from None
    if not callable(found):
        raise ValueError(f"{path!r} is a {type(found).__name__}: it has to be a class or function")
    loaded: Callable[..., Algorithm] = found
    return loaded


def find(name: str, settings: Settings, size: int) -> Compared:
    """Return an algorithm by its name, of `check_name`; WAGMA's options are those of `settings`."""
    if ":" in name:
        return Compared(name, name.partition(":")[2], _load(name), {}, None)
    if found := numbered(name):
        base, number = found
        if base == "allreduce-buckets":
            return _allreduce(name, f"AllreduceSGD, {number} KiB", bucket_bytes=number << 10)
        if base.startswith("diloco"):
            return _diloco(name, number, base, settings, size)
        if base.startswith("k-"):
            return _server(name, base, number)
        made = {"sgp": _sgp, "ksync": _ksync, "kasync": _ksync}.get(base, _local)
        return made(name, number)
    makers: dict[str, Callable[[], Compared]] = {
        "wagma": lambda: _wagma(name, "WAGMA", settings, size),
        "wagma-ff": lambda: _wagma(
            name, "WAGMA, fast-forward", settings, size, missed="fast-forward"
        ),
        "wagma-nosync": lambda: _wagma(name, "WAGMA, no sync", settings, size, sync_period=None),
        "wagma-fixed": lambda: _wagma(
            name, "WAGMA, fixed groups", settings, size, dynamic_groups=False
        ),
        "wagma-world": lambda: _wagma(name, "WAGMA, S=P", settings, size, group_size=size),
        "wagma-small": lambda: _wagma(name, "WAGMA, S=2", settings, size, group_size=min(2, size)),
        "allreduce": lambda: _allreduce(name, "AllreduceSGD"),
        "auto": lambda: Compared(name, "Auto", "Auto", {"sync_period": settings.sync_period}, None),
        "dropcompute": lambda: _allreduce(name, "DropCompute"),
        "dropcompute-preempt": lambda: _allreduce(name, "DropCompute, preempt"),
        "anytime": lambda: _allreduce(name, "Anytime Minibatch"),
        "dpsgd": lambda: Compared(name, "D-PSGD", "DPSGD", {}, method(name)),
        "eager-majority": lambda: _eager(name, "majority"),
        "eager-solo": lambda: _eager(name, "solo"),
        "adpsgd": lambda: Compared(name, "AD-PSGD", "ADPSGD", {}, method(name, grace=0.0)),
        "ddp": lambda: Compared(
            # It waits in backward(), which counts as computing: its bound is not known.
            *(name, "DDP, gloo", "LocalSGD", {"sync_period": None}, None),
            by_ddp=True,
        ),
        "fastest-k": lambda: Compared(
            name, "fastest-k", "FastestK", {"k0": 1, "thresh": 5, "burnin": 20}, None
        ),
    }
    return makers[name]()


def _group_size(settings: Settings, size: int) -> int:
    from wagma.collectives.topology import default_group_size

    return default_group_size(size) if settings.group_size is None else settings.group_size


def _wagma(name: str, label: str, settings: Settings, size: int, **chosen: Any) -> Compared:
    options = {
        "group_size": _group_size(settings, size),
        "sync_period": settings.sync_period,
        **chosen,
    }
    waits = {key: options[key] for key in ("group_size", "sync_period", "missed") if key in options}
    return Compared(name, label, "WAGMA", options, method("wagma", grace=0.0, **waits))


def _local(name: str, period: int) -> Compared:
    stop = stopping.stop_of(name)
    label = f"LocalSGD({period})" if stop is None else f"DropCompute, LocalSGD({period})"
    options = {"sync_period": period}
    return Compared(name, label, "LocalSGD", options, method(f"local{period}"), stop=stop)


def _allreduce(name: str, label: str, **options: Any) -> Compared:
    return Compared(
        *(name, label, "AllreduceSGD", options, method("allreduce")), stop=stopping.stop_of(name)
    )


def _diloco(name: str, period: int, kind: str, settings: Settings, size: int) -> Compared:
    options: dict[str, Any] = {"sync_period": period}
    if kind == "diloco":
        return Compared(name, f"DiLoCo({period})", "DiLoCo", options, method(f"local{period}"))
    variant = kind.removeprefix("diloco-")
    if variant == "overlap":
        options["overlap"] = True
    else:
        options["group_size"] = _group_size(settings, size)
    return Compared(name, f"DiLoCo({period}), {variant}", "DiLoCo", options, None)


def _ksync(name: str, k: int) -> Compared:
    label, home = ("K-sync", "KSync") if name.startswith("ksync") else ("K-async", "KAsync")
    return Compared(name, f"{label}, K={k}", home, {"k": k}, None, least_ranks=k)


def _server(name: str, kind: str, k: int) -> Compared:
    options = {"method": kind, "k": k}
    label = f"{kind.replace('k-', 'K-', 1)}, K={k}, server"
    return Compared(name, label, "ParameterServerSGD", options, None, least_ranks=k + 1)


def _sgp(name: str, neighbors: int) -> Compared:
    return Compared(
        *(name, f"SGP({neighbors})", "SGP", {"neighbors": neighbors}),
        method(name),
        least_ranks=neighbors + 1 if neighbors > 1 else 1,
    )


def _eager(name: str, variant: str) -> Compared:
    options = {"variant": variant}
    return Compared(name, f"eager-SGD, {variant}", "EagerSGD", options, method(name, grace=0.0))
