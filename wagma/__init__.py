"""Wait-avoiding group averaging for data-parallel training on CPUs.

``wagma.collectives`` holds the collectives; this package holds what trains with them:
`DistributedOptimizer` with `WAGMA` or one of the algorithms that it is compared with
(`AllreduceSGD`, `LocalSGD`, `DiLoCo`, `DPSGD`, `SGP`, `ADPSGD`, `EagerSGD`, `KSync`, `KAsync`,
`FastestK`) or an `Algorithm` of your own, ``wagma.inject``, which makes stragglers and faults on
purpose, and ``python -m wagma``.
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

# What needs torch is imported when it is used: the collectives work without torch.
_ALGORITHMS = (  # the names of wagma/algorithms.py
    "ADPSGD",
    "Algorithm",
    "AllreduceSGD",
    "DPSGD",
    "DiLoCo",
    "DropCompute",
    "EagerSGD",
    "FastestK",
    "KAsync",
    "KSync",
    "LocalSGD",
    "ParameterServerSGD",
    "SGP",
    "WAGMA",
)
_HOMES = {
    "DistributedOptimizer": "wagma.training.optimizer",
    "broadcast": "wagma.training.broadcasting",
    **dict.fromkeys(_ALGORITHMS, "wagma.algorithms"),
}

if TYPE_CHECKING:  # type checkers follow imports
    __version__: str
    from wagma import inject as inject
    from wagma.algorithms import *  # noqa: F403 (those of _ALGORITHMS)
    from wagma.training.broadcasting import broadcast as broadcast
    from wagma.training.optimizer import DistributedOptimizer as DistributedOptimizer
else:
    __all__ = ["__version__", "inject", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version(__name__)
    if name == "inject":  # imported when it is used, because it needs numpy
        return import_module("wagma.inject")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "torch":
            raise
        raise ImportError(
            f"wagma.{name} needs PyTorch, which is not installed: python -m pip install torch"
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), "__version__", "inject", *_HOMES})
