"""Calls in two parts: posted, and waited for."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ...collectives import Outcome, Request
from ..contributions import Contributions
from .mpi import FORMS, MPIIallreduce, datatype
from .partial import WagmaAllreduce
from .subject import Subject

if TYPE_CHECKING:
    from ..settings import Settings

__all__ = ["Posted", "posted"]


class Posted(Subject):
    """A subject whose call has two parts; that of `caller` is a blocking one."""

    @abstractmethod
    def post(self) -> Any:
        """Begins a reduction; returns the request."""

    @abstractmethod
    def test(self, request: Any) -> None:
        """Looks after a request, without waiting; harmless when it is complete."""

    @abstractmethod
    def wait(self, request: Any) -> Any:
        """Ends it; returns what `delivered` takes."""


class PostedWagma(WagmaAllreduce, Posted):
    """`PartialAllreduce.iallreduce`."""

    _tested: Outcome | None = None  # a request is not asked again once it has given its outcome

    def post(self) -> Request:
        """See `Posted`."""
        self._tested = None
        return self._coll.iallreduce(self._argument)

    def test(self, request: Request) -> None:
        """See `Posted`."""
        if self._tested is None:
            self._tested = request.test()

    def wait(self, request: Request) -> Outcome:
        """See `Posted`."""
        outcome = request.wait() if self._tested is None else self._tested
        if self._out_of_place:
            self.look(outcome)
        return outcome


class PostedMPI(MPIIallreduce, Posted):
    """MPI_Iallreduce."""

    def post(self) -> MPI.Request:
        """See `Posted`."""
        return self._iallreduce(*self._arguments)

    def test(self, request: MPI.Request) -> None:
        """See `Posted`."""
        request.Test()

    def wait(self, request: MPI.Request) -> None:
        """See `Posted`."""
        request.Wait()


def posted(
    settings: Settings,
    comm: MPI.Intracomm,
    contributions: Contributions,
    count: int,
    stack: ExitStack,
    handles: int = 1,
) -> list[Posted]:
    """wagma's, then the forms of MPI_Iallreduce, if it is a baseline; collective.

    Args:
        settings: what was asked for.
        comm: all ranks.
        contributions: the first is given to wagma.
        count: elements of each array.
        stack: closes them.
        handles: how many of wagma's.
    """
    first = np.empty(count, contributions.storage)
    contributions.write(first, comm.Get_rank(), -1)
    found: list[Posted] = [PostedWagma(settings, comm, first) for _ in range(handles)]
    if "mpi-nonblocking" in settings.baselines:
        everybody = tuple(range(comm.Get_size()))
        kind = datatype(settings.datatype, comm)
        for form in FORMS:
            x = np.empty(count, contributions.storage)
            found.append(PostedMPI(comm, everybody, x, kind, form))
    for subject in found:
        stack.callback(subject.close)
    return found
