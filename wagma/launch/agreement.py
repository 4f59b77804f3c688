"""That all ranks were asked for the same: others would wait for ever for what one never does.

The first collective of a run gathers every rank's settings, or why a rank has none: a rank whose
command line was refused takes part in it before it ends. Some ranks have imported for longer:
the others sleep.
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

__all__ = ["InputError", "agreed", "refuse"]

# In this order; the options of fields that have another name than theirs.
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
    """What was asked for cannot be done; all ranks raise it, before anything is measured."""


def agreed(comm: MPI.Intracomm, settings: S) -> S:
    """Rank 0's settings, a dataclass, which are those of all ranks; collective.

    Raises:
        InputError: a rank has others, or its command line was refused; a barrier has to follow.
    """
    found: list[S | str] = gather(comm, settings)
    for rank, one in enumerate(found):
        if isinstance(one, str):
            why = one or "it only shows its help or version"
            raise InputError(f"rank {rank} takes no part: {why}; give all ranks one command")
    names = [field.name for field in fields(settings)]
    for name in sorted(names, key=lambda name: name not in OPTIONS):
        by_value: dict[Any, list[int]] = {}
        for rank, one in enumerate(found):
            by_value.setdefault(getattr(one, name, None), []).append(rank)
        if len(by_value) > 1:
            values = ", ".join(f"{_text(name, v)} on {rank_list(r)}" for v, r in by_value.items())
            option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
            raise InputError(f"{option} is {values}; give all ranks one command")
    return settings


def refuse(said: str) -> None:
    """Tells the other ranks that this one ends with its command line; nothing without a launcher.

    Args:
        said: what is wrong with it; "": it asked for help.
    """
    if not _launched():
        return
    from wagma.collectives.communicator import import_mpi

    try:
        mpi = import_mpi()
    except ImportError:
        return  # the others cannot wait for it in MPI either
    gather(mpi.COMM_WORLD, said)
    mpi.COMM_WORLD.Barrier()  # all have said what there is to say


def _launched() -> bool:
    """Whether a launcher says that there are other ranks, or may be."""
    started = started_ranks(os.environ)
    several = started is not None and started[1] > 1 and started[0] != TORCHRUN
    return several or PMIX.rank in os.environ  # which comes without a size


def _text(name: str, value: Any) -> str:
    if name == "sizes":
        return f"{value[0]}:{value[-1]}"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "given" if value else "not given"
    return "not given" if value is None else str(value)
