"""What the progress thread of a handle over MPI costs while its rank computes between two calls."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wagma.collectives import PartialAllreduce

if TYPE_CHECKING:
    from mpi4py import MPI

    from ..start import Start
    from .plan import Training

CALLS = 20  # before, so that memory and connections are there
THREAD_CLOCK = 6  # of a thread of this process: its CPU time, as pthread_getcpuclockid() has it


def idle(comm: MPI.Intracomm, start: Start, s: Training) -> dict[str, Any]:
    """Measure CPU time and wake-ups of the threads of a handle while all ranks sleep."""
    before = _threads()
    x = np.zeros(s.bytes // 4, np.float32)
    with PartialAllreduce(comm, x, quorum=1, window=s.window, transport="mpi") as coll:
        for _ in range(CALLS):
            coll.allreduce(x)
        start.meet()
        threads = _threads() - before
        began, cpu, woken = time.perf_counter(), _cpu_ns(threads), _wakeups(threads)
        time.sleep(s.idle)
        found = {
            "threads": len(threads),
            "cpu_ns": _cpu_ns(threads) - cpu,
            "wakeups": _wakeups(threads) - woken,
            "seconds": time.perf_counter() - began,
        }
        start.meet()
    return found


def _threads() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def _cpu_ns(threads: set[int]) -> int:
    return sum(time.clock_gettime_ns(~thread << 3 | THREAD_CLOCK) for thread in threads)


def _wakeups(threads: set[int]) -> int:
    """Return how often these threads went to sleep."""
    found = 0
    for thread in threads:
        for line in Path(f"/proc/self/task/{thread}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "voluntary_ctxt_switches":
                found += int(value)
    return found
