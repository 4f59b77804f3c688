"""MPI_Allreduce and MPI_Iallreduce, called through mpi4py with the datatype spelled out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ..contributions import Vector
from ..native import NotFoundError, mpi_call
from .subject import CSubject, Delivered, OnGpu, Summed, Taken, UnavailableError

if TYPE_CHECKING:
    from .._loop import Call
    from ..gpus import Inputs

FORMS = ("in-place", "two-buffers")

_NAMES = {
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "float16": "FLOAT16_T",
    "bfloat16": "BFLOAT16_T",
    "int32": "INT32_T",
    "int64": "INT64_T",
}


def library_version() -> str:
    """Return the first line of what MPI says about itself."""
    return " ".join(MPI.Get_library_version().partition("\n")[0].strip("\0").split())


def datatype(name: str, comm: MPI.Intracomm) -> MPI.Datatype:
    """MPI's name for wagma's; collective: sums of 16 bits are tried.

    Raises:
        UnavailableError: this MPI has no such type, or no sums of it.
    """
    found: MPI.Datatype = getattr(MPI, _NAMES[name], MPI.DATATYPE_NULL)
    missing = UnavailableError(
        f"{library_version()} has no sums of {name}: there is no baseline of MPI"
    )
    if found == MPI.DATATYPE_NULL:
        raise missing
    if name.endswith("float16"):
        one = np.zeros(1, np.uint16)
        try:
            comm.Allreduce([one.copy(), found], [one, found])
        except MPI.Exception as error:
            raise missing from error
    return found


class MPIAllreduce(Summed, CSubject):
    """MPI_Allreduce, in place or from one buffer into another.

    Args:
        comm: whose ranks' arrays are added up.
        members: their ranks among all.
        x: array to be reduced, of which the first form needs no second.
        kind: of its elements.
        form: one of FORMS.
        of: what the name says of the ranks.
    """

    library = "mpi"
    function = "Allreduce"

    def __init__(
        self,
        comm: MPI.Comm,
        members: Sequence[int],
        x: Vector,
        kind: MPI.Datatype,
        form: str,
        of: str = "",
    ) -> None:
        in_place = form == "in-place"
        result = x if in_place else np.empty_like(x)
        super().__init__(f"MPI_{self.function}{of} {form}", x, members, result)
        self._comm, self._kind = comm, kind
        sent: Any = MPI.IN_PLACE if in_place else [x, kind]
        self._call = partial(getattr(comm, self.function), sent, [result, kind])

    def caller(self) -> Callable[[], Any]:
        """See `Subject`."""
        return self._call

    def c_call(self) -> Call | None:
        """See `Subject`."""
        source, result = self._source.ctypes.data, self._result.ctypes.data
        sent = None if self._result is self._source else source
        try:
            return mpi_call(self._comm, sent, result, self._source.size, self._kind, MPI.SUM)
        except NotFoundError:
            return None

    @property
    def address(self) -> int:
        """See `Subject`."""
        return self._source.ctypes.data

    def c_taken(self, result: Vector | None, outcome: Any) -> Taken:  # noqa: ARG002
        """See `Subject`."""
        return self.taken(Delivered(result))


class MPIHostCopies(OnGpu):
    """A copy to pinned memory of the host, MPI_Allreduce in place there, and a copy back.

    Args:
        comm: whose ranks' arrays are added up.
        members: their ranks among all.
        inputs: what writes the arrays on the GPU.
        first: elements of the array at first.
        kind: of its elements.
        of: what the name says of the ranks.
        validate: whether results are compared.
    """

    library = "mpi"

    def __init__(
        self,
        comm: MPI.Comm,
        members: Sequence[int],
        inputs: Inputs,
        first: Vector,
        kind: MPI.Datatype,
        of: str = "",
        *,
        validate: bool,
    ) -> None:
        name = f"MPI_Allreduce{of} host-copies"
        super().__init__(name, inputs, first, members, validate=validate)
        self._comm, self._kind = comm, kind
        self._host = inputs.gpu.pinned(first)

    def caller(self) -> Callable[[], Any]:
        """See `Subject`."""
        return self._reduce

    def _reduce(self) -> None:
        gpu = self.inputs.gpu
        gpu.to_host(self._host, self.x)
        self._comm.Allreduce(MPI.IN_PLACE, [self._host, self._kind])
        gpu.to_gpu(self.x, self._host)
        gpu.finish()


class MPIIallreduce(MPIAllreduce):
    """MPI_Iallreduce and MPI_Wait at once."""

    function = "Iallreduce"

    def caller(self) -> Callable[[], Any]:
        """See `Subject`."""
        return self._reduce

    def _reduce(self) -> None:
        self._call().Wait()

    def c_call(self) -> None:
        """Return None: the call has two parts."""
