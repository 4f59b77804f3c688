"""The reductions that are measured beside each other."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from ...collectives.topology import groups
from ..contributions import Contributions, Vector
from .mpi import FORMS, MPIAllreduce, MPIIallreduce, datatype
from .partial import WagmaAllreduce
from .subject import Contributed, Subject, Taken, UnavailableError
from .torch import Gloo, Nccl, check

if TYPE_CHECKING:
    from mpi4py import MPI

    from ..settings import Settings

__all__ = [
    "Contributed",
    "Subject",
    "Taken",
    "UnavailableError",
    "available",
    "private_arrays",
    "subjects",
]


def available(settings: Settings, comm: MPI.Intracomm) -> str | None:
    """Why there is no baseline of MPI although one was asked for; None: there is; collective.

    Raises:
        UnavailableError: on this rank another baseline cannot be measured; says what to do.
    """
    for library in ("gloo", "nccl"):
        if library in settings.baselines:
            check(library)
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
        if settings.group_size not in (None, comm.Get_size()):
            members, part = _part(settings, comm)
            stack.callback(part.Free)
            for form in FORMS:
                name = f"MPI_Allreduce of {settings.group_size} ranks"
                add(MPIAllreduce(part, members, array(), kind, form, name))
    if "mpi-nonblocking" in settings.baselines:
        for form in FORMS:
            add(MPIIallreduce(comm, everybody, array(), kind, form))
    if "gloo" in settings.baselines:
        add(Gloo(comm, array(), settings.datatype))
    if "nccl" in settings.baselines:
        add(Nccl(comm, array(), settings.datatype))
    return made


def _part(settings: Settings, comm: MPI.Intracomm) -> tuple[tuple[int, ...], MPI.Intracomm]:
    """This rank's group of version 0, and a communicator of it."""
    found = groups(comm.Get_size(), settings.group_size or comm.Get_size(), 0)
    number = next(i for i, members in enumerate(found) if comm.Get_rank() in members)
    return found[number], comm.Split(number, comm.Get_rank())


def private_arrays(settings: Settings) -> int:
    """Arrays outside of shared memory that a rank needs."""
    mpi = 3 * (("mpi" in settings.baselines) + ("mpi-nonblocking" in settings.baselines))
    if "mpi" in settings.baselines and settings.group_size is not None:
        mpi += 3
    others = ("gloo" in settings.baselines) + ("nccl" in settings.baselines)
    return 1 + (settings.form == "private") + mpi + others
