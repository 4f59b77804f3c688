"""Times of exchanges with given schedules. Every function is collective."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
from mpi4py import MPI

from wagma.collectives._engine import Handle, check_options
from wagma.collectives.arrays import resolve
from wagma.collectives.meeting import Meeting
from wagma.collectives.options import Options
from wagma.collectives.patience import Patience
from wagma.collectives.tuning import Schedule

__all__ = ["measure"]

FEWEST, MOST = 7, 200  # calls of which the median is taken
WARMING = 3


def measure(
    comm: MPI.Intracomm,
    size: int,
    schedules: Sequence[Schedule],
    seconds: float,
    advance: Callable[[], None],
) -> list[float]:
    """Seconds of a call with each of the schedules, of float32 arrays of `size` bytes.

    The schedules take turns, so that whatever else the machine does hits all of them.

    Args:
        comm: the ranks.
        size: bytes of the array.
        schedules: to compare.
        seconds: how long each of them is called, about.
        advance: called after each schedule's share.
    """
    array = np.ones(max(1, size // 4), np.float32)
    with ExitStack() as stack:
        handles = [stack.enter_context(_handle(comm, array, schedule)) for schedule in schedules]
        warm = [max(_call(comm, handle, array) for _ in range(WARMING)) for handle in handles]
        calls = _agreed_calls(comm, max(warm), seconds)
        own = np.empty((len(handles), calls))
        for call in range(calls):
            for number, handle in enumerate(handles):
                own[number, call] = _call(comm, handle, array)
    slowest = np.empty_like(own)  # rank of each call
    comm.Allreduce(own, slowest, MPI.MAX)
    for _ in schedules:
        advance()
    return [statistics.median(times) for times in slowest.tolist()]


def _handle(comm: MPI.Intracomm, array: np.ndarray, schedule: Schedule) -> Handle:
    with Meeting(comm, Patience()) as meeting:
        code = resolve(array, writable=False).dtype.code
        options = check_options(Options().engine(comm.size, array.size, code))
        channel = meeting.channel(options, schedule)
        handles: list[Handle] = []
        meeting.exchange(
            lambda: handles.append(
                Handle(channel, meeting.rank, array, name="tune", watch=meeting.check)
            ),
            last=True,
        )
    return handles[0]


def _call(comm: MPI.Intracomm, handle: Handle, array: np.ndarray) -> float:
    """Seconds of one call, by ranks that come together, with an array that was just written."""
    array.fill(1.0)
    comm.Barrier()
    began = time.perf_counter()
    handle.allreduce(array)
    return time.perf_counter() - began


def _agreed_calls(comm: MPI.Intracomm, longest: float, seconds: float) -> int:
    """The same number on all ranks."""
    longest = comm.allreduce(longest, MPI.MAX)
    return min(max(int(seconds / longest), FEWEST), MOST)
