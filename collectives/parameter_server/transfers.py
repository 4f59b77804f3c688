"""Transfers of large arrays between two ranks, in chunks, by persistent requests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..communicator import import_mpi

if TYPE_CHECKING:
    from mpi4py import MPI

Bytes = npt.NDArray[np.uint8]

CHUNK = 4 << 20  # bytes of a message
_SHORTEST_S, _LONGEST_S = 2e-5, 5e-4  # bounds of the time between two polls
_POLL_SHARE = 1 / 16  # time between two polls, as a share of the wait so far
_SPIN_S = 1e-3  # the first part of a wait does not sleep
_BUSY_S = 0.02  # a wait for a transfer sleeps after so long without a completed message
_WATCH_S = 0.05  # between two checks for dead ranks
_abandoned: list[Any] = []  # requests of failed ranks: MPI may still read or write their memory


class Transfer:
    """A part of an array to send to a rank, or to receive from it, whenever it is started.

    Args:
        comm: communicator of the ranks.
        memory: the array.
        spans: (start, end) of each part of the array, in bytes; sizes are equal on the other rank.
        peer: the other rank.
        tag: tag of the messages.
        sends: True: send; False: receive.

    Attributes:
        peer: as given.
        left: messages that were active at the last call of `test`.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        memory: Bytes,
        spans: Iterable[tuple[int, int]],
        peer: int,
        tag: int,
        *,
        sends: bool,
    ) -> None:
        make = comm.Send_init if sends else comm.Recv_init
        kind = import_mpi().BYTE
        self.peer = peer
        self.left = 0
        self._requests = [
            make([memory[at : min(at + CHUNK, end)], kind], peer, tag)
            for start, end in spans
            for at in range(start, end, CHUNK)
        ]

    def start(self) -> None:
        """Start the messages; earlier ones have ended."""
        import_mpi().Prequest.Startall(self._requests)
        self.left = len(self._requests)

    @property
    def active(self) -> bool:
        """Return whether messages were active at the last call of `test`."""
        return self.left > 0

    def test(self) -> int:
        """Return the number of active messages."""
        if self.left:
            self.left -= len(import_mpi().Request.Testsome(self._requests) or ())
        return self.left

    def free(self) -> None:
        """Free the requests; the transfer cannot be started again."""
        if self.active:
            keep(self._requests)
        else:
            for request in self._requests:
                request.Free()
        self._requests = []


def finish(transfers: Sequence[Transfer], watch: Callable[[], Sequence[int]]) -> list[Transfer]:
    """Wait until `transfers` have ended; do not sleep as long as messages complete.

    Args:
        transfers: transfers that were started.
        watch: returns the lost ranks; an exception that it raises ends the wait.

    Returns:
        The transfers that cannot end, because their ranks are lost.
    """
    watched = since = time.monotonic()
    pending = list(transfers)
    before = -1
    while left := sum(transfer.test() for transfer in pending):
        now = time.monotonic()
        if left != before:
            before, since = left, now
        if now - watched >= _WATCH_S:
            watched = now
            lost = watch()
            pending = [transfer for transfer in pending if transfer.active]
            if all(transfer.peer in lost for transfer in pending):
                return pending
        if now - since < _BUSY_S:
            os.sched_yield()
        else:
            time.sleep(_SHORTEST_S)
    return []


def keep(requests: Sequence[Any]) -> None:
    """Keep requests and their memory until the process ends: they may never complete."""
    _abandoned.extend(requests)


def nap(seconds: float) -> float:
    """Sleep or yield until the next poll, in a wait of `seconds` so far; return the time slept."""
    began = time.monotonic()
    if seconds < _SPIN_S:
        os.sched_yield()
    else:
        time.sleep(min(_POLL_SHARE * seconds, _LONGEST_S))
    return time.monotonic() - began
