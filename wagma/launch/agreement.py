"""Check that all ranks got the same settings; otherwise some would wait for ever.

The first collective of a run gathers the settings of all ranks. A rank whose command line was
refused takes part before it ends, and gives the reason. Ranks that finish their imports early sleep
while they wait.
"""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from wagma.launch.environment import PMIX, TORCHRUN, started_ranks
from wagma.launch.ranks import gather
from wagma.units import rank_list

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from mpi4py import MPI

# Options of fields, compared in this order; other fields have the option of their own name.
OPTIONS = {
    "kind": "the kind",
    "datatype": "-T",
    "sizes": "-m",
    "iterations": "-i",
    "iterations_large": "-i",
    "warmup": "-x",
    "warmup_large": "-x",
    "validate": "-c",
    "full": "-f",
    "percentiles": "-z",
    "tests": "-t",
    "baselines": "--baseline",
}

S = TypeVar("S", bound="DataclassInstance")


class InputError(Exception):
    """The settings are impossible; raised on all ranks, before anything is measured."""


def agreed(comm: MPI.Intracomm, settings: S) -> S:
    """Return the settings, a dataclass, after checking that all ranks have the same; collective.

    Raises:
        InputError: the settings of a rank differ, or its command line was refused; a barrier has to
            follow.
    """
    gathered: list[S | str] = gather(comm, settings)
    for rank, one in enumerate(gathered):
        if isinstance(one, str):
            why = one or "it only shows its help or version"
            raise InputError(f"rank {rank} takes no part: {why}; give all ranks one command")
    names = [field.name for field in fields(settings)]
    for name in sorted(names, key=lambda name: name not in OPTIONS):
        by_value: dict[Any, list[int]] = {}
        for rank, one in enumerate(gathered):
            by_value.setdefault(getattr(one, name, None), []).append(rank)
        if len(by_value) > 1:
            values = ", ".join(f"{_text(name, v)} on {rank_list(r)}" for v, r in by_value.items())
            option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
            raise InputError(f"{option} is {values}; give all ranks one command")
    return settings


def refuse(reason: str) -> None:
    """Tell the other ranks that this one ends because of its command line.

    Without a launcher it does nothing.

    Args:
        reason: the error of the command line; "": it asked for help.
    """
    if not _launched():
        return
    from wagma.collectives.communicator import import_mpi

    try:
        mpi = import_mpi()
    except ImportError:
        return  # without MPI the other ranks do not wait either
    gather(mpi.COMM_WORLD, reason)
    mpi.COMM_WORLD.Barrier()  # all ranks have printed their messages


def _launched() -> bool:
    """Return whether a launcher has started other ranks, or may have."""
    started = started_ranks(os.environ)
    several = started is not None and started[1] > 1 and started[0] != TORCHRUN
    return several or PMIX.rank in os.environ  # PMIx sets no size


def _text(name: str, value: Any) -> str:
    if name == "sizes":
        return f"{value[0]}:{value[-1]}"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "given" if value else "not given"
    return "not given" if value is None else str(value)
