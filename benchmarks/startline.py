"""Lets ranks start at the same moment, without the help of what is being measured.

A barrier of MPI or of wagma would leave the one or the other with warm caches. Here every rank
writes the time of its arrival into shared memory. When all have arrived they start at the latest
arrival plus MARGIN_NS by CLOCK_MONOTONIC, which the processes of a node share. Ranks without a core
of their own yield while they wait, and each starts as soon as it sees that all have arrived.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["StartLine"]

MARGIN_NS = 3000  # a few turns of the loops below
LINE = 16  # words of 8 bytes: two cache lines for each rank


class StartLine:
    """Made and passed by all ranks together; `crowded`: they have no cores of their own."""

    def __init__(self, comm: MPI.Intracomm, crowded: bool) -> None:
        self._rank, self._size = comm.Get_rank(), comm.Get_size()
        bytes_ = 2 * 8 * LINE * self._size
        name = None
        if self._rank == 0:
            descriptor, name = tempfile.mkstemp(prefix="wagma-benchmark-", dir="/dev/shm")
            os.ftruncate(descriptor, bytes_)
            os.close(descriptor)
        path = Path(comm.bcast(name))
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), bytes_)).cast("q")
        comm.Barrier()
        if self._rank == 0:
            path.unlink()
        self._crowded = crowded
        self._passed = 0

    def wait(self) -> None:
        """Returns when all ranks have called it, at the same moment on all."""
        words, clock, crowded = self._words, time.monotonic_ns, self._crowded
        self._passed = passed = self._passed + 1
        # Two sets of words: a rank may arrive at the next start before another has read this one's.
        base = passed % 2 * LINE * self._size
        mine = base + LINE * self._rank
        words[mine] = clock()
        words[mine + 1] = passed  # after the time: x86 keeps the order, elsewhere the margin helps
        start = 0
        for other in range(base, base + LINE * self._size, LINE):
            while words[other + 1] != passed:
                if crowded:
                    os.sched_yield()
            start = max(start, words[other])
        if not crowded:
            start += MARGIN_NS
            while clock() < start:
                pass
