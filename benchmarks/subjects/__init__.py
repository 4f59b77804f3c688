"""The reductions that are measured beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from wagma.collectives.topology import groups

from ..contributions import Vector
from ..gpus import Inputs, TorchGpu
from ..measurement import Measurement
from ..settings import Settings, members
from .mpi import FORMS, MPIAllreduce, MPIHostCopies, MPIIallreduce, datatype
from .partial import WagmaAllreduce, check
from .subject import CSubject, Delivered, OnGpu, Subject, Taken, UnavailableError
from .torch import Gloo, Nccl, check_library, shared_gpus

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "CSubject",
    "Delivered",
    "Subject",
    "Taken",
    "UnavailableError",
    "check",
    "check_libraries",
    "subjects",
    "unavailable",
]


def check_libraries(settings: Settings) -> None:
    """Check that torch has what the baselines need.

    Raises:
        UnavailableError: on this rank it has not; says what to do.
    """
    for library in ("gloo", "nccl"):
        if library in settings.baselines:
            check_library(library)


def unavailable(settings: Settings, comm: MPI.Intracomm) -> dict[str, str]:
    """Return which wanted baselines' libraries cannot be measured, and why; collective."""
    found = {}
    if any(name.startswith("mpi") for name in settings.baselines):
        try:
            datatype(settings.datatype, comm)
        except UnavailableError as error:
            found["mpi"] = str(error)
    if "nccl" in settings.baselines and (why := shared_gpus(comm)):
        found["nccl"] = why
    return found


def subjects(m: Measurement, stack: ExitStack) -> list[Subject]:
    """Return what is measured, wagma's first; collective. `stack` closes the subjects."""
    settings, comm, inputs, validate = m.settings, m.comm, m.inputs, m.settings.validate
    made: list[Subject] = []

    def add(subject: Subject) -> None:
        stack.callback(subject.close)
        made.append(subject)

    def add_mpi(part: MPI.Comm, ranks: Sequence[int], of: str = "") -> None:
        if inputs is not None:
            add(MPIHostCopies(part, ranks, inputs, m.first(), kind, of, validate=validate))
            return
        for form in FORMS:
            add(MPIAllreduce(part, ranks, m.array(), kind, form, of))

    add(WagmaAllreduce(settings, comm, m.first(), inputs))
    if any(name.startswith("mpi") for name in settings.baselines):
        kind = datatype(settings.datatype, comm)
    if "mpi" in settings.baselines:
        add_mpi(comm, range(m.ranks))
        width = members(settings, m.ranks)
        if width < m.ranks:
            group, part = _part(width, comm)
            stack.callback(part.Free)
            add_mpi(part, group, f" of groups of {width}")
    if "mpi-nonblocking" in settings.baselines:
        for form in FORMS:
            add(MPIIallreduce(comm, range(m.ranks), m.array(), kind, form))
    if "gloo" in settings.baselines:
        add(Gloo(comm, m.array(), settings.datatype))
    if "nccl" in settings.baselines:
        tensors = inputs
        if tensors is None or not isinstance(tensors.gpu, TorchGpu):
            tensors = Inputs(TorchGpu(m.rank), m.contributions)
        add(Nccl(comm, tensors, m.first(), validate=validate))
    if "copy" in settings.baselines and inputs is not None:
        add(DeviceCopy(m.rank, inputs, m.first(), validate=validate))
    return made


class DeviceCopy(OnGpu):
    """A copy of the array in the GPU's memory, which is what a reduction on it cannot beat."""

    library = "copy"

    def __init__(self, rank: int, inputs: Inputs, first: Vector, *, validate: bool) -> None:
        super().__init__("copy on the GPU", inputs, first, [rank], validate=validate)
        self.result = inputs.array(first)

    def caller(self) -> Callable[[], Any]:
        """See `Subject`."""
        return self._copy

    def _copy(self) -> None:
        self.inputs.gpu.copy(self.result, self.x)
        self.inputs.gpu.finish()


def _part(width: int, comm: MPI.Intracomm) -> tuple[tuple[int, ...], MPI.Comm]:
    """Return this rank's group at version 0, and a communicator of it."""
    found = groups(comm.Get_size(), width, 0)
    number = next(i for i, group in enumerate(found) if comm.Get_rank() in group)
    return found[number], comm.Split(number, comm.Get_rank())
