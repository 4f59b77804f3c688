"""Ctrl-C in the middle of a training: every rank leaves it at its next step.

A rank that leaves makes nobody wait, and those that were not interrupted themselves are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi4py import MPI

if TYPE_CHECKING:
    from wagma.launch.interrupt import Interrupt


class Stop:
    """Asked at every step; made on all ranks, whose communicator it duplicates."""

    def __init__(self, comm: MPI.Intracomm, interrupted: Interrupt) -> None:
        self._comm = comm.Dup()
        self._interrupted = interrupted
        self._told: list[MPI.Request] = []

    def now(self) -> bool:
        """Return whether this rank was interrupted, or has heard that another was."""
        if self._interrupted.asked:
            self._tell()
            return True
        return bool(self._comm.Iprobe(MPI.ANY_SOURCE))

    def _tell(self) -> None:
        if not self._told:
            others = [r for r in range(self._comm.size) if r != self._comm.rank]
            self._told = [self._comm.Isend(b"", rank) for rank in others]

    def close(self) -> None:
        """Receive what was sent; collective."""
        for rank, told in enumerate(self._comm.allgather(bool(self._told))):
            if told and rank != self._comm.rank:
                self._comm.Recv(bytearray(), rank)
        MPI.Request.Waitall(self._told)
        self._comm.Free()
