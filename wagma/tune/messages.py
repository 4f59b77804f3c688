"""Times of messages between two ranks, over the MPI alone. Every function is collective."""

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI

from wagma.launch.ranks import meet
from wagma.tune.loggp import LogGP, RoundTrip, fit, points
from wagma.tune.measuring import FEWEST, MOST, WARMING

_SUMMED = 1 << 20  # bytes of the arrays with which additions are timed


def partners(comm: MPI.Intracomm) -> dict[str, int]:
    """Return the lowest other rank on rank 0's node, "node", and on others, "between"."""
    shared = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        first = shared.allreduce(comm.rank, MPI.MIN)
    finally:
        shared.Free()
    found: dict[str, int] = {}
    for rank, neighbour in enumerate(comm.allgather(first)):
        if rank > 0:
            found.setdefault("node" if neighbour == 0 else "between", rank)
    return found


def measure_messages(
    comm: MPI.Intracomm, partner: int, seconds: float, largest: int, advance: Callable[[], None]
) -> LogGP:
    """Return the numbers of messages between rank 0 and its partner, while other ranks sleep.

    Args:
        comm: the ranks.
        partner: a rank, not 0.
        seconds: for which round trips of a kind are repeated, about.
        largest: bytes that are on their way at once, at most.
        advance: called for each of `points`.
    """
    trips: list[RoundTrip] = []
    sending: list[float] = []
    if comm.rank in (0, partner):
        other = partner if comm.rank == 0 else 0
        for count, size in points(largest):
            parts = list(np.ones((count, size), np.uint8))
            took, sent = _repeated(comm, other, parts, seconds)
            trips.append(RoundTrip(count, size, took))
            if size == 0:
                sending.append(sent / count)
            advance()
    meet(comm)
    found: LogGP = comm.bcast(fit(trips, min(sending), _adding()) if comm.rank == 0 else None)
    return found


def _repeated(
    comm: MPI.Intracomm, other: int, parts: Sequence[np.ndarray], seconds: float
) -> tuple[float, float]:
    """Return the medians of a round trip's seconds, and of those in which rank 0 sends."""
    longest = max(_round_trip(comm, other, parts)[0] for _ in range(WARMING))
    calls = min(max(int(seconds / longest), FEWEST), MOST)
    if comm.rank == 0:
        comm.send(calls, other)
    else:
        calls = comm.recv(source=0)
    times = [_round_trip(comm, other, parts) for _ in range(calls)]
    took, sent = zip(*times, strict=True)
    return statistics.median(took), statistics.median(sent)


def _round_trip(
    comm: MPI.Intracomm, other: int, parts: Sequence[np.ndarray]
) -> tuple[float, float]:
    """Send the parts from rank 0, and an answer back; return the seconds, and those of sending."""
    answer = np.empty(0, np.uint8)
    began = time.perf_counter()
    if comm.rank == 0:
        requests = [comm.Isend(part, other) for part in parts]
        sent = time.perf_counter() - began
        MPI.Request.Waitall(requests)
        comm.Recv(answer, other)
    else:
        MPI.Request.Waitall([comm.Irecv(part, other) for part in parts])
        sent = time.perf_counter() - began
        comm.Send(answer, other)
    return time.perf_counter() - began, sent


def _adding() -> float:
    """Return the seconds in which this rank adds a byte of one array to another; local."""
    x, y = np.ones(_SUMMED // 4, np.float32), np.ones(_SUMMED // 4, np.float32)
    times = []
    for _ in range(MOST // 4):
        began = time.perf_counter()
        np.add(x, y, out=x)
        times.append(time.perf_counter() - began)
    return statistics.median(times) / _SUMMED
