"""Times of exchanges with given schedules. Every function is collective."""

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
from mpi4py import MPI

from wagma.collectives import tuning
from wagma.collectives._engine import Handle, check_options
from wagma.collectives.arrays import resolve
from wagma.collectives.options import Options
from wagma.collectives.rendezvous.meeting import Meeting
from wagma.collectives.rendezvous.patience import Patience
from wagma.collectives.tuning import Schedule

FEWEST, MOST = 7, 200  # calls of which the median is taken
WARMING = 3


def measure(
    comm: MPI.Intracomm, seconds: float, size: int, schedules: Sequence[Schedule]
) -> list[float]:
    """Return the seconds of a call with each of the schedules, of float32 arrays of `size` bytes.

    The schedules take turns, so that whatever else the machine does hits all of them.

    Args:
        comm: the ranks.
        seconds: how long each of the schedules is called, about.
        size: bytes of the array.
        schedules: to compare.
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
    return [statistics.median(times) for times in slowest.tolist()]


def ranks_on_this_node(comm: MPI.Intracomm) -> int:
    """Return how many of the ranks share memory with this one."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return node.Get_size()
    finally:
        node.Free()


def default_schedule(size: int, on_a_node: int) -> Schedule:
    """Return the schedule of `size` ranks where nothing was measured; no value is 0. Local."""
    wanted = tuning.default(size, on_a_node).options()
    options = check_options({"size": size, "count": 0} | wanted)
    return Schedule(**{name: int(options[name]) for name in wanted})


def _handle(comm: MPI.Intracomm, array: np.ndarray, schedule: Schedule) -> Handle:
    with Meeting(comm, Patience()) as meeting:
        code = resolve(array, writable=False).dtype.code
        wanted = Options().with_environment()  # progress, above all
        options = check_options(wanted.engine(comm.size, array.size, code))
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
    """Return the seconds of a call with an array just written, when ranks arrive together."""
    array.fill(1.0)
    comm.Barrier()
    began = time.perf_counter()
    handle.allreduce(array)
    return time.perf_counter() - began


def _agreed_calls(comm: MPI.Intracomm, longest: float, seconds: float) -> int:
    """Return the number of calls, equal on all ranks."""
    longest = comm.allreduce(longest, MPI.MAX)
    return min(max(int(seconds / longest), FEWEST), MOST)
