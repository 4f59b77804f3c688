"""The reductions that are measured beside each other."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from wagma.collectives.topology import groups

from ..measurement import Measurement
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
    """Return why a wanted baseline of MPI is missing; None: none is; collective.

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


def subjects(m: Measurement, stack: ExitStack) -> list[Subject]:
    """Return what is measured, wagma's first; collective. `stack` closes the subjects."""
    settings, comm = m.settings, m.comm
    made: list[Subject] = []

    def add(subject: Subject) -> None:
        stack.callback(subject.close)
        made.append(subject)

    add(WagmaAllreduce(settings, comm, m.first()))
    if any(name.startswith("mpi") for name in settings.baselines):
        kind = datatype(settings.datatype, comm)
    if "mpi" in settings.baselines:
        for form in FORMS:
            add(MPIAllreduce(comm, range(m.ranks), m.array(), kind, form))
        width = members(settings, m.ranks)
        if width < m.ranks:
            group, part = _part(width, comm)
            stack.callback(part.Free)
            for form in FORMS:
                add(MPIAllreduce(part, group, m.array(), kind, form, f" of groups of {width}"))
    if "mpi-nonblocking" in settings.baselines:
        for form in FORMS:
            add(MPIIallreduce(comm, range(m.ranks), m.array(), kind, form))
    for library, kind_of in (("gloo", Gloo), ("nccl", Nccl)):
        if library in settings.baselines:
            add(kind_of(comm, m.array(), settings.datatype))
    return made


def _part(width: int, comm: MPI.Intracomm) -> tuple[tuple[int, ...], MPI.Comm]:
    """Return this rank's group at version 0, and a communicator of it."""
    found = groups(comm.Get_size(), width, 0)
    number = next(i for i, group in enumerate(found) if comm.Get_rank() in group)
    return found[number], comm.Split(number, comm.Get_rank())
