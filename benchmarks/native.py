"""Calls of the engine's and of MPI's functions for the loop in C, by their addresses.

The functions are those that the process already uses: of MPI, those of the library that mpi4py is
linked to; nothing is compiled against it.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import TYPE_CHECKING

from wagma.collectives import Handle, _engine

from . import _loop

if TYPE_CHECKING:
    from mpi4py import MPI


class NotFoundError(LookupError):
    """A function of MPI cannot be called by its address: loops around it run in Python."""


@cache
def address(path: str, name: str) -> int:
    """Return where the function `name` is, as the loaded shared object `path` would call it.

    Raises:
        NotFoundError: `path` is not loaded, or neither it nor its libraries have the function.
    """
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        found = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except (OSError, AttributeError) as error:
        raise NotFoundError(f"{name} is not in the libraries of {path}: {error}") from error
    assert found is not None
    return found


def wagma_call(handle: Handle, *, weight: float = 1.0) -> _loop.Call:
    """`handle.allreduce(x, weight)`, without the binding; the loop says what x is."""
    path = _engine.__file__
    return _loop.wagma_call(
        handle,
        weight=weight,
        allreduce=address(path, "wagma_allreduce"),
        next_contribution=address(path, "wagma_next_contribution"),
    )


def mpi_call(
    comm: MPI.Comm,
    sendbuf: int | None,
    recvbuf: int,
    count: int,
    datatype: MPI.Datatype,
    op: MPI.Op,
) -> _loop.Call:
    """MPI_Allreduce of `count` elements; the addresses must stay valid. None: in place.

    Raises:
        NotFoundError: MPI_Allreduce cannot be called so; the message says why.
    """
    from mpi4py import MPI

    sizes = {MPI._sizeof(handle) for handle in (datatype, op, comm)}
    if sizes not in ({ctypes.sizeof(ctypes.c_int)}, {ctypes.sizeof(ctypes.c_void_p)}):
        raise NotFoundError(f"MPI's handles have {sorted(sizes)} bytes: neither ints nor pointers")
    return _loop.mpi_call(
        function=address(MPI.__file__, "MPI_Allreduce"),
        sendbuf=_word(int(MPI.IN_PLACE) if sendbuf is None else sendbuf),
        recvbuf=recvbuf,
        count=count,
        datatype=_signed(MPI._handleof(datatype)),
        op=_signed(MPI._handleof(op)),
        comm=_signed(MPI._handleof(comm)),
        handle_bytes=sizes.pop(),
        error=MPI.Exception,
    )


def _word(number: int) -> int:
    """Return the address of MPI's constants such as (void *)-1."""
    return number % (1 << 8 * ctypes.sizeof(ctypes.c_void_p))


def _signed(handle: int) -> int:
    """Return the same 64 bits with a sign: MPICH's handles are ints, some of them negative."""
    return ctypes.c_int64(handle).value
