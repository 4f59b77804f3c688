"""The reductions that are measured beside each other."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from wagma.collectives.topology import groups

from ..contributions import Contributions, Vector
from ..settings import Settings, members
from .mpi import FORMS, MPIAllreduce, MPIIallreduce, datatype
from .partial import WagmaAllreduce, check
from .subject import CSubject, Delivered, Subject, Taken, UnavailableError
from .torch import Gloo, Nccl, check_library

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "CSubject",
    "Delivered",
    "Subject",
    "Taken",
    "UnavailableError",
    "available",
    "check",
    "subjects",
]


def available(settings: Settings, comm: MPI.Intracomm) -> str | None:
    """Why there is no baseline of MPI although one was asked for; None: there is; collective.

    Raises:
        UnavailableError: on this rank another baseline cannot be measured; says what to do.
    """
    for library in ("gloo", "nccl"):
        if library in settings.baselines:
            check_library(library)
    if any(name.startswith("mpi") for name in settings.baselines):
        try:
            datatype(settings.datatype, comm)
        except UnavailableError as error:
            return str(error)
    return None


def subjects(
    settings: Settings,
    comm: MPI.Intracomm,
    contributions: Contributions,
    count: int,
    stack: ExitStack,
) -> list[Subject]:
    """Makes them, wagma's first; collective.

    Args:
        settings: what was asked for.
        comm: all ranks.
        contributions: the first is given to wagma.
        count: elements of each array.
        stack: closes them.
    """
    made: list[Subject] = []

    def array() -> Vector:
        return np.empty(count, contributions.storage)

    def add(subject: Subject) -> None:
        stack.callback(subject.close)
        made.append(subject)

    first = array()
    contributions.write(first, comm.Get_rank(), -1)
    add(WagmaAllreduce(settings, comm, first))
    del first
    everybody = tuple(range(comm.Get_size()))
    if any(name.startswith("mpi") for name in settings.baselines):
        kind = datatype(settings.datatype, comm)
    if "mpi" in settings.baselines:
        for form in FORMS:
            add(MPIAllreduce(comm, everybody, array(), kind, form))
        width = members(settings, comm.Get_size())
        if width < comm.Get_size():
            group, part = _part(width, comm)
            stack.callback(part.Free)
            for form in FORMS:
                what = f"MPI_Allreduce of groups of {width}"
                add(MPIAllreduce(part, group, array(), kind, form, what))
    if "mpi-nonblocking" in settings.baselines:
        for form in FORMS:
            add(MPIIallreduce(comm, everybody, array(), kind, form))
    if "gloo" in settings.baselines:
        add(Gloo(comm, array(), settings.datatype))
    if "nccl" in settings.baselines:
        add(Nccl(comm, array(), settings.datatype))
    return made


def _part(width: int, comm: MPI.Intracomm) -> tuple[tuple[int, ...], MPI.Comm]:
    """This rank's group of version 0, and a communicator of it."""
    found = groups(comm.Get_size(), width, 0)
    number = next(i for i, group in enumerate(found) if comm.Get_rank() in group)
    return found[number], comm.Split(number, comm.Get_rank())
