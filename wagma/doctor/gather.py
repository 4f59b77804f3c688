"""Facts of all ranks: each probes itself, then they try things with each other.

No probe raises anything: what fails is noted, and its facts stay at their defaults.
"""

import ctypes
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from wagma.doctor import machine, software
from wagma.doctor.facts import (
    Clock,
    Cpus,
    Engine,
    Facts,
    Gpu,
    Live,
    Memory,
    Mpi,
    RankFacts,
    Wanted,
    restored,
)
from wagma.doctor.ranks import Ranks, ranks_of_job
from wagma.doctor.software import one_line
from wagma.launch.environment import ALLOCATION, VARIABLES, launched_rank

T = TypeVar("T")

# Besides all that begin with WAGMA_.
PASSED = {
    *VARIABLES,
    *ALLOCATION,
    "CUDA_VISIBLE_DEVICES",
    "I_MPI_OFFLOAD",
    "MPICH_GPU_SUPPORT_ENABLED",
    "OMP_NUM_THREADS",
    "UCX_TLS",
}
ELEMENTS = 100_000  # beyond what is reduced in the records of the ranks


def gather(wanted: Wanted, timeout: float, early: Callable[[Facts], object]) -> tuple[Facts, int]:
    """Return the job's facts, equal on all ranks, and this one's number.

    Args:
        wanted: the handle that is to be made.
        timeout: seconds that a rank waits for another, except in MPI.
        early: is given this process's facts before MPI starts, which may not come back.

    Raises:
        Lost: not all ranks came.
    """
    own = replace(_probe_machine(), rank=launched_rank(os.environ))
    early(Facts(ranks=[own], live=[Live(skipped="it is early")], wanted=wanted, launcher=""))
    own = _probe_mpi(own)
    ranks, lost = ranks_of_job(own, timeout)
    own = replace(own, rank=ranks.rank, node=ranks.node)
    own = _compare_clocks(own, ranks)
    own = _read_neighbour(own, ranks)
    everybody = [restored(RankFacts, told) for told in ranks.allgather(asdict(own))]
    trial = _try(everybody, ranks, timeout)
    live = [restored(Live, told) for told in ranks.allgather(asdict(trial))]
    ranks.leave()
    facts = Facts(ranks=everybody, live=live, wanted=wanted, launcher=ranks.launcher, lost=lost)
    return facts, ranks.rank


# ---- a process by itself -------------------------------------------------------------------------


def _probe_machine() -> RankFacts:
    """Return the facts of this process without MPI, as if it were alone in its job."""
    failed: dict[str, str] = {}
    return RankFacts(
        engine=_attempt("engine", software.engine, Engine(), failed),
        host=_attempt("host", socket.gethostname, "", failed),
        machine=machine.text_of("/proc/sys/kernel/random/boot_id"),
        versions=_attempt("versions", software.versions, {}, failed),
        environment={
            name: value
            for name, value in sorted(os.environ.items())
            if name in PASSED or name.startswith("WAGMA_")
        },
        cpus=_attempt("cores", machine.cpus, Cpus(affinity=(), online=0), failed),
        memory=_attempt("memory", machine.memory, Memory(), failed),
        gpu=_attempt("GPU", software.gpu, Gpu(), failed),
        clock=_attempt("clock", machine.clock, Clock(), failed),
        failed=failed,
    )


def _probe_mpi(own: RankFacts) -> RankFacts:
    """Start MPI, which can abort the process; return `own` with its facts."""
    failed = dict(own.failed)
    return replace(own, mpi=_attempt("MPI", software.mpi, Mpi(), failed), failed=failed)


def _attempt(name: str, function: Callable[[], T], default: T, failed: dict[str, str]) -> T:
    try:
        return function()
    except Exception as error:  # whatever it is, the other probes have something to say
        failed[name] = one_line(error)
        return default


# ---- what ranks see of each other ----------------------------------------------------------------


def _compare_clocks(own: RankFacts, ranks: Ranks) -> RankFacts:
    """Measure how far the clock is behind the times that neighbours read before this rank."""
    read: list[float] = ranks.allgather(time.monotonic())
    now = time.monotonic()
    behind = max(read[neighbour] for neighbour in ranks.neighbours) - now
    return replace(own, clock=replace(own.clock, behind=max(behind, 0.0)))


# ---- reading another process's memory ------------------------------------------------------------


class _Range(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _read_neighbour(own: RankFacts, ranks: Ranks) -> RankFacts:
    """Read some bytes of the next rank of this node, as MPI libraries do with large messages."""
    secret = secrets.token_hex(16)
    memory = ctypes.create_string_buffer(secret.encode(), len(secret))
    told = ranks.allgather((_pid_namespace(), os.getpid(), ctypes.addressof(memory), secret))
    place = ranks.neighbours.index(ranks.rank)
    neighbour = ranks.neighbours[(place + 1) % len(ranks.neighbours)]
    if neighbour != ranks.rank:
        try:
            error = _read(*told[neighbour])
        except Exception as caught:  # no such function: the others wait for this rank
            error = one_line(caught)
        own = replace(own, memory=replace(own.memory, cma=not error, cma_error=error))
    ranks.allgather(None)  # the memory is there until everybody has read
    return own


def _pid_namespace() -> int:
    """Return the number of the namespace in which this process's ID names it."""
    return Path("/proc/self/ns/pid").stat().st_ino


def _read(namespace: int, pid: int, address: int, expected: str) -> str:
    """Return what is wrong with reading `expected` there; empty: nothing."""
    if namespace != _pid_namespace():
        return "the ranks are in different containers (PID namespaces)"
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    here = ctypes.create_string_buffer(len(expected))
    to = _Range(ctypes.addressof(here), len(expected))
    from_ = _Range(address, len(expected))
    count = libc.process_vm_readv(
        pid,
        ctypes.byref(to),
        ctypes.c_ulong(1),
        ctypes.byref(from_),
        ctypes.c_ulong(1),
        ctypes.c_ulong(0),
    )
    if count < 0:
        return os.strerror(ctypes.get_errno())
    if here.raw != expected.encode():
        return "the process of that number is another one"
    return ""


# ---- the collective ------------------------------------------------------------------------------


def _try(everybody: Sequence[RankFacts], ranks: Ranks, timeout: float) -> Live:
    """Make a handle and call it; all ranks decide alike whether, and over whom."""
    for rank in everybody:
        if rank.engine.error or "engine" in rank.failed:
            return Live(skipped="the engine is missing")
        if rank.engine.options_error:
            return Live(skipped="the environment has wrong options")
        if rank.memory.shm_error:
            return Live(skipped="there is no shared memory")
    reached = not any(rank.mpi.messages_error for rank in everybody)
    members = range(len(everybody)) if reached else ranks.neighbours
    try:
        return Live(calls=_call(ranks, members, timeout), ranks=len(members))
    except Exception as error:  # of whatever kind, it is what the user would see
        text = " ".join(str(error).split())
        return Live(ranks=len(members), error=f"{type(error).__name__}: {text}")


def _call(ranks: Ranks, members: Sequence[int], timeout: float) -> int:
    """Return how many calls gave the right sum: of a private array, of one that the handle has."""
    import numpy as np

    def contribution(rank: int, version: int) -> Any:
        return np.arange(ELEMENTS, dtype=np.float64) * (rank + 1) + version

    everybody = list(members) != ranks.neighbours
    with ranks.handle(contribution(ranks.rank, 0), timeout, everybody=everybody) as handle:
        shared = handle.empty()
        for version, x in enumerate((np.empty_like(shared), shared, shared)):
            x[:] = contribution(ranks.rank, version)
            handle.allreduce(x)
            # Small whole numbers: the sum is exact in whatever order.
            right = sum(contribution(rank, version) for rank in members)
            if not np.array_equal(x, right):
                wrong = int(np.argmax(x != right))
                raise ArithmeticError(
                    f"call {version}: element {wrong} of the sum is {x[wrong]}, not {right[wrong]}"
                )
        return handle.version
