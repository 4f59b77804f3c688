"""Parts of large arrays on their way between two ranks, in chunks, by requests that are reused."""

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

__all__ = ["Transfer", "finish", "keep", "nap"]

Bytes = npt.NDArray[np.uint8]

CHUNK = 4 << 20  # bytes of a message
_SHORTEST_S, _LONGEST_S = 2e-5, 5e-4  # between two looks for messages
_SHORT = 1 / 16  # of the time that a wait has taken, at most, is slept until the next look
_SPIN_S = 1e-3  # an answer that comes at once is not slept for
_BUSY_S = 0.02  # without anything done, until a transfer is waited for asleep
_WATCH_S = 0.05  # between two looks whether a rank has died
_abandoned: list[Any] = []  # what MPI may still read or write, of ranks that have failed


class Transfer:
    """Send a part of an array to a rank, or receive it from there, as often as it is started.

    Args:
        comm: of the ranks.
        memory: the array.
        spans: (start, end) of the parts of it, in bytes; the other rank has parts of equal sizes.
        peer: the other rank.
        tag: of the messages.
        sends: or else it receives.

    Attributes:
        peer: as given.
        left: messages that were under way when `test` was called last.
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
        """Begin; the one before has ended."""
        import_mpi().Prequest.Startall(self._requests)
        self.left = len(self._requests)

    @property
    def active(self) -> bool:
        """Return whether it was begun, and has not ended as far as `test` has seen."""
        return self.left > 0

    def test(self) -> int:
        """Return how many messages are under way."""
        if self.left:
            self.left -= len(import_mpi().Request.Testsome(self._requests) or ())
        return self.left

    def free(self) -> None:
        """Let go of the requests, which are not used again."""
        if self.active:
            keep(self._requests)
        else:
            for request in self._requests:
                request.Free()
        self._requests = []


def finish(transfers: Sequence[Transfer], watch: Callable[[], Sequence[int]]) -> list[Transfer]:
    """Wait until `transfers` have ended, without sleep as long as any of them does.

    Args:
        transfers: that were started.
        watch: returns the ranks that are lost, and raises what else ends the wait.

    Returns:
        Those that have not: their ranks are lost.
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
    """Keep requests, and what they read or write, until the process ends: they may never do."""
    _abandoned.extend(requests)


def nap(seconds: float) -> float:
    """Leave the core until the next look, in a wait of `seconds` so far; return the time slept."""
    began = time.monotonic()
    if seconds < _SPIN_S:
        os.sched_yield()
    else:
        time.sleep(min(_SHORT * seconds, _LONGEST_S))
    return time.monotonic() - began
