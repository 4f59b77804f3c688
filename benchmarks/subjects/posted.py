"""Calls in two parts: posted, and waited for."""

from abc import abstractmethod
from contextlib import ExitStack
from typing import Any

from mpi4py import MPI

from ...collectives import Outcome, Request
from ..measurement import Measurement
from .mpi import FORMS, MPIIallreduce, datatype
from .partial import WagmaAllreduce
from .subject import Subject


class Posted(Subject):
    """A subject whose call has two parts; that of `caller` is a blocking one."""

    @abstractmethod
    def post(self) -> Any:
        """Begin a reduction; return the request."""

    @abstractmethod
    def test(self, request: Any) -> None:
        """Advance a request without waiting; harmless when it is complete."""

    @abstractmethod
    def wait(self, request: Any) -> Any:
        """End it; return what `delivered` takes."""


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
        self.look(outcome)
        return outcome


class PostedMPI(MPIIallreduce, Posted):
    """MPI_Iallreduce."""

    def post(self) -> MPI.Request:
        """See `Posted`."""
        request: MPI.Request = self._call()
        return request

    def test(self, request: MPI.Request) -> None:
        """See `Posted`."""
        request.Test()

    def wait(self, request: MPI.Request) -> None:
        """See `Posted`."""
        request.Wait()


def posted(m: Measurement, stack: ExitStack, handles: int = 1) -> list[Posted]:
    """Return `handles` of wagma's, then MPI_Iallreduce's forms if it is a baseline; collective.

    `stack` closes them.
    """
    first = m.first()
    found: list[Posted] = [PostedWagma(m.settings, m.comm, first, m.inputs) for _ in range(handles)]
    if "mpi-nonblocking" in m.settings.baselines:
        kind = datatype(m.settings.datatype, m.comm)
        found += [PostedMPI(m.comm, range(m.ranks), m.array(), kind, form) for form in FORMS]
    for subject in found:
        stack.callback(subject.close)
    return found
