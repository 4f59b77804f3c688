"""Wait-avoiding group averaging for data-parallel training.

``wagma.collectives`` holds the collectives; this package holds what trains with them:
`DistributedOptimizer` with `WAGMA` or one of the algorithms that it is compared with
(`AllreduceSGD`, `Cannikin`, `LocalSGD`, `DiLoCo`, `DPSGD`, `SGP`, `ADPSGD`, `EagerSGD`, `KSync`,
`KAsync`, `FastestK`, and `Auto`, which chooses) or an `Algorithm` of your own,
``wagma.checkpoint``, which saves and resumes trainings, ``wagma.data``, whose samplers deal out the
samples, ``wagma.inject``, which makes stragglers and faults on purpose, ``wagma.logs``, what each
rank writes down, ``wagma.preemption``, which ends trainings in time, `Profile`, which records what
ranks spend their time on, and ``python -m wagma``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if find_spec("wagma.collectives") is None:
    _folder = Path(__file__).resolve().parent
    raise ImportError(
        f"the source folder {_folder} hides the installed package wagma: run Python from another "
        f"folder than {_folder.parent}, or install wagma in place: "
        f"python -m pip install -e {_folder.parent}"
    )

# Imported when they are used: most need numpy.
_ROOMS = ("data", "inject", "logs", "preemption", "profile")
# What needs torch is imported when it is used: the collectives work without torch. Other
# capitalised names are those of algorithms.
_TORCH_ROOMS = ("checkpoint",)
_ALGORITHMS = "wagma.algorithms"
_PLAIN_HOMES = {"Profile": "wagma.profile"}
_HOMES = {
    "DistributedOptimizer": "wagma.training.optimizer",
    "broadcast": "wagma.training.broadcasting",
}

if TYPE_CHECKING:  # type checkers follow imports
    __version__: str
    from wagma import checkpoint as checkpoint
    from wagma import data as data
    from wagma import inject as inject
    from wagma import logs as logs
    from wagma import preemption as preemption
    from wagma import profile as profile
    from wagma.algorithms import *  # noqa: F403 (all algorithms)
    from wagma.profile import Profile as Profile
    from wagma.training.broadcasting import broadcast as broadcast
    from wagma.training.optimizer import DistributedOptimizer as DistributedOptimizer


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version(__name__)
    if name == "__all__":
        return _names()
    if name in _ROOMS:
        return import_module(f"wagma.{name}")
    room = f"wagma.{name}" if name in _TORCH_ROOMS else None
    home = room or {**_PLAIN_HOMES, **_HOMES}.get(name, _ALGORITHMS if name[:1].isupper() else None)
    if home is not None:
        try:
            module = import_module(home)
        except ModuleNotFoundError as error:
            if not _lacks_torch(error):
                raise
            raise ImportError(
                f"wagma.{name} needs PyTorch, which is not installed: python -m pip install torch"
            ) from error
        if room is not None:
            return module
        if name in vars(module):
            return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})


def _names() -> list[str]:
    """Return the public names: those that need torch only where it is installed."""
    names = ["__version__", *_ROOMS, *_PLAIN_HOMES]
    try:
        algorithms = vars(import_module(_ALGORITHMS))
    except ModuleNotFoundError as error:
        if not _lacks_torch(error):
            raise
        return names
    return [*names, *_TORCH_ROOMS, *_HOMES, *(name for name in algorithms if name[:1].isupper())]


def _lacks_torch(error: ModuleNotFoundError) -> bool:
    return (error.name or "").split(".")[0] == "torch"
