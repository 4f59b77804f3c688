"""An mpi4py communicator whose sums are wagma's: `Allreduce` and `Iallreduce` with MPI.SUM.

Everything else goes to MPI. Calls are eligible if they are sums of a type that wagma supports;
`tally` counts them, and those of them that went to wagma.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from wagma.collectives import Request, SyncAllreduce

Array: TypeAlias = npt.NDArray[Any]

# Not read from wagma, which would make calls ineligible by forgetting a type. bfloat16 is missing,
# because numpy has none, and mpi4py's tests do not use it.
SUPPORTED = ("float16", "float32", "float64", "int32", "int64")
LEAST_SHARE = 0.9
TIMEOUT_S = 30.0


@dataclass
class Tally:
    """Counts calls under the label that is set meanwhile."""

    label: str = ""
    eligible: Counter[str] = field(default_factory=Counter)
    wagma: Counter[str] = field(default_factory=Counter)

    def describe(self, label: str) -> str:
        return f"{self.wagma[label]} of {self.eligible[label]} eligible calls went to wagma"

    def problems(self, labels: Iterable[str]) -> list[str]:
        """What keeps the calls of `labels` from being a test of wagma."""
        found = [
            f"{label}: {self.describe(label)}, {LEAST_SHARE:.0%} have to"
            for label in labels
            if not self.eligible[label] or self.wagma[label] < LEAST_SHARE * self.eligible[label]
        ]
        return found or ([] if labels else ["no tests of Allreduce"])


class Communicator(MPI.Intracomm):
    """An intracommunicator whose sums are wagma's; so are those of its duplicates.

    Attributes:
        repeats: wagma sums so many copies of an array, side by side, and all have to be equal.
    """

    tally: ClassVar[Tally] = Tally()
    repeats: ClassVar[int] = 1
    _sums: dict[tuple[int, str], Sum]

    def __new__(cls, comm: MPI.Intracomm | None = None) -> Communicator:
        self = super().__new__(cls, comm)
        self._sums = {}  # not in __init__, which Dup() does not call
        return self

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:  # noqa: N802
        arrays = self._arrays(sendbuf, recvbuf, op)
        if arrays is None:
            super().Allreduce(sendbuf, recvbuf, op)
        else:
            self._sum(arrays[1]).allreduce(*arrays)

    def Iallreduce(  # noqa: N802
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM
    ) -> MPI.Request | Posted:
        arrays = self._arrays(sendbuf, recvbuf, op)
        if arrays is None:
            return super().Iallreduce(sendbuf, recvbuf, op)
        return self._sum(arrays[1]).iallreduce(*arrays)

    def Free(self) -> None:  # noqa: N802
        self.close()
        super().Free()

    def close(self) -> None:
        """Closes the handles, in the order in which all ranks have made them."""
        for made in self._sums.values():
            made.close()
        self._sums.clear()

    def _arrays(self, sendbuf: Any, recvbuf: Any, op: MPI.Op) -> tuple[Array | None, Array] | None:
        """What is sent (None: in place) and received; None: not for wagma. Counts the call."""
        if op != MPI.SUM or not may_be_supported(recvbuf):
            return None
        self.tally.eligible[self.tally.label] += 1
        try:
            send = None if sendbuf is None or sendbuf is MPI.IN_PLACE else as_array(sendbuf)
            receive = as_array(recvbuf)
        except (TypeError, ValueError):
            return None
        if send is not None and (send.shape, send.dtype) != (receive.shape, receive.dtype):
            return None
        if not receive.flags.writeable:
            return None
        self.tally.wagma[self.tally.label] += 1
        return send, receive

    def _sum(self, like: Array) -> Sum:
        key = like.size, like.dtype.name
        if key not in self._sums:
            self._sums[key] = Sum(MPI.Intracomm(self), like, self.repeats)
        return self._sums[key]


class Sum:
    """The sum of arrays of one length and type over one communicator. Creation is collective.

    What is received in place is summed in private memory: the caller's, unless it is repeated. What
    is sent from another array goes through the handle's own. So wagma is tested with both.
    """

    def __init__(self, comm: MPI.Intracomm, like: Array, repeats: int) -> None:
        self._repeats = repeats
        self._handle = SyncAllreduce(
            comm,
            np.zeros((repeats, like.size), like.dtype),
            average=False,
            timeout=TIMEOUT_S,
            name="oracle",
        )
        self._own = self._handle.empty()
        self._pending: Posted | None = None

    def allreduce(self, send: Array | None, receive: Array) -> None:
        copies = self._filled(send, receive)
        self._handle.allreduce(copies)
        deliver(copies, receive)

    def iallreduce(self, send: Array | None, receive: Array) -> Posted:
        copies = self._filled(send, receive)
        self._pending = Posted(self._handle.iallreduce(copies), copies, receive)
        return self._pending

    def close(self) -> None:
        self._handle.close()

    def _filled(self, send: Array | None, receive: Array) -> Array:
        if self._pending is not None:  # a handle has one request, MPI any number: end this one
            self._pending.Wait()
        if send is None:
            return (
                receive[np.newaxis] if self._repeats == 1 else np.tile(receive, (self._repeats, 1))
            )
        self._own[...] = send
        return self._own


class Posted:
    """What `Iallreduce` returns for wagma's sums: the part of MPI.Request that completes it."""

    def __init__(self, request: Request, copies: Array, receive: Array) -> None:
        self._request: Request | None = request
        self._copies = copies
        self._receive = receive

    def Test(self, status: MPI.Status | None = None) -> bool:  # noqa: ARG002, N802
        if self._request is not None and self._request.test() is not None:
            self._deliver()
        return self._request is None

    def Wait(self, status: MPI.Status | None = None) -> Literal[True]:  # noqa: ARG002, N802
        if self._request is not None:
            self._request.wait()
            self._deliver()
        return True

    def _deliver(self) -> None:
        self._request = None
        deliver(self._copies, self._receive)


def deliver(copies: Array, receive: Array) -> None:
    """Receives one of the copies, shape (copies, elements), which are all the same."""
    differing = np.flatnonzero((copies != copies[0]).any(axis=1))
    assert not differing.size, f"copy {differing[0]} of {len(copies)} differs from the first"
    receive[...] = copies[0]


def may_be_supported(message: Any) -> bool:
    """Whether wagma supports the type of a message; True if that cannot be told."""
    try:
        return dtype_of(message).name in SUPPORTED
    except (TypeError, ValueError):
        return True


def dtype_of(message: Any) -> np.dtype[Any]:
    """The type of the elements of a message: [data, type], [data, count, type] or data.

    Raises:
        TypeError, ValueError: it is something else.
    """
    code = message[-1] if isinstance(message, list | tuple) else memoryview(message).format
    datatype = MPI.Datatype.fromcode(code) if isinstance(code, str) else code
    if not isinstance(datatype, MPI.Datatype):
        raise TypeError(f"{datatype!r} is not a datatype")
    return np.dtype(datatype.typestr)


def as_array(message: Any) -> Array:
    """The elements of a message, where they are, in one dimension.

    Memory that claims to be a GPU's is taken for the CPU's, as it is in mpi4py's tests as long as
    they use neither CuPy nor Numba.

    Raises:
        TypeError, ValueError: it is not [data, type], [data, count, type] or data, or too short.
    """
    dtype = dtype_of(message)
    data, *between = message[:-1] if isinstance(message, list | tuple) else [message]
    buffer = MPI.buffer(data)
    count, left = divmod(buffer.nbytes, dtype.itemsize)
    if between:
        (count,) = between
    elif left:
        raise ValueError(f"{buffer.nbytes} bytes are no whole number of elements")
    return np.ndarray((count,), dtype, buffer=buffer)
