"""What a call from Python takes beyond the same call from C.

``mpiexec -n P python -m wagma.benchmarks.binding`` prints it for small arrays. Bursts of calls, one
after the other without pause, come from Python and from C in turn. What disturbs a burst makes it
long, and the median leaves it out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np

from wagma.collectives import PartialAllreduce

from . import _loop, native
from .start import Start

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Binding", "binding"]

SIZES = (4, 8, 16, 32, 64)
BURSTS = 200
CALLS = 200
WARMUP = 5  # bursts


@dataclass(frozen=True)
class Binding:
    """Times of one call, ns, of the slowest rank: medians over the bursts.

    Attributes:
        size: bytes of the array.
        quorum: of the collective.
        python_ns: called from Python.
        c_ns: called from C, without reading the clock.
    """

    size: int
    quorum: int | str
    python_ns: float
    c_ns: float

    @property
    def overhead_ns(self) -> float:
        """What the binding and the interpreter's loop take."""
        return self.python_ns - self.c_ns


def binding(
    comm: MPI.Intracomm,
    start: Start,
    size: int,
    quorum: Literal["all", "majority"] | int,
    *,
    bursts: int = BURSTS,
    calls: int = CALLS,
) -> Binding | None:
    """Measures `allreduce` of a private float32 array. Collective.

    Args:
        comm: the ranks.
        start: of them.
        size: bytes, a multiple of 4.
        quorum: as of `Options`.
        bursts: of each kind.
        calls: of each burst.

    Returns:
        The times; None on other ranks than 0.
    """
    x = np.zeros(size // 4, np.float32)
    arrivals, began, ended = np.zeros((3, calls), np.int64)
    nothing = np.empty((1, 0), np.uint8)  # no input is copied
    times = np.empty((WARMUP + bursts, 2))
    with PartialAllreduce(comm, x, quorum=quorum) as collective:
        allreduce, call = collective.allreduce, native.wagma_call(collective)
        for burst in times:
            start.wait()
            before = start.now()
            for _ in range(calls):
                allreduce(x)
            burst[0] = start.now() - before
            start.wait()
            _loop.run(None, call, x.ctypes.data, nothing, arrivals, began, ended)
            burst[1] = ended[-1] - began[0]
        start.meet()  # nobody departs before the others have made their last call
    by_rank = comm.gather(times[WARMUP:])
    if by_rank is None:
        return None
    python, c = np.max(by_rank, axis=0).T / calls
    # The loop in C reads the clock twice for each call.
    return Binding(size, quorum, median(python), median(c) - 2 * _loop.clock_ns())


def main() -> None:
    """Prints the times of all SIZES."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    cores = len(os.sched_getaffinity(0))
    if cores >= comm.Get_size() > 1:  # each rank on one of its own
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[comm.Get_rank()]})
    if comm.Get_rank() == 0:
        print(f"# {comm.Get_size()} ranks, {cores} cores; ns per call")
        print(f"{'# Size':>8} {'quorum':>8} {'Python':>9} {'C':>9} {'overhead':>9}")
    with Start(comm, crowded=comm.Get_size() > cores) as start:
        quorums: tuple[Literal["all"], Literal[1]] = ("all", 1)
        for quorum in quorums:
            for size in SIZES:
                found = binding(comm, start, size, quorum)
                if found is not None:
                    print(
                        f"{size:8} {quorum:>8} {found.python_ns:9.1f} {found.c_ns:9.1f} "
                        f"{found.overhead_ns:9.1f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
