"""Facts of this process: everything that asks the system, MPI or a library.

No probe raises anything: what fails is noted, and its facts stay at their defaults.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from wagma.doctor import machine, software
from wagma.doctor.facts import Clock, Cpus, Engine, Gpu, Memory, Mpi, RankFacts
from wagma.doctor.texts import one_line, text_of
from wagma.launch import environment

__all__ = ["probe_machine", "probe_mpi"]

T = TypeVar("T")

# Besides all that begin with WAGMA_.
VARIABLES = (
    *environment.VARIABLES,
    "CUDA_VISIBLE_DEVICES",
    "I_MPI_OFFLOAD",
    "MPICH_GPU_SUPPORT_ENABLED",
    "OMP_NUM_THREADS",
    "SLURM_JOB_ID",
    "SLURM_NNODES",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "UCX_TLS",
)


def probe_machine() -> RankFacts:
    """Facts of this process without MPI, as if it were alone in its job."""
    failed: dict[str, str] = {}
    return RankFacts(
        engine=_attempt("engine", software.engine, Engine(), failed),
        host=_attempt("host", socket.gethostname, "", failed),
        machine=text_of("/proc/sys/kernel/random/boot_id"),
        versions=_attempt("versions", software.versions, {}, failed),
        environment={
            name: value
            for name, value in sorted(os.environ.items())
            if name in VARIABLES or name.startswith("WAGMA_")
        },
        cpus=_attempt("cores", machine.cpus, Cpus(affinity=(), online=0), failed),
        memory=_attempt("memory", machine.memory, Memory(), failed),
        gpu=_attempt("GPU", machine.gpu, Gpu(), failed),
        clock=_attempt("clock", machine.clock, Clock(), failed),
        failed=failed,
    )


def probe_mpi(own: RankFacts) -> RankFacts:
    """`own` with what is known once MPI has started, which can abort the process."""
    failed = dict(own.failed)
    return replace(own, mpi=_attempt("MPI", software.mpi, Mpi(), failed), failed=failed)


def _attempt(name: str, function: Callable[[], T], default: T, failed: dict[str, str]) -> T:
    try:
        return function()
    except Exception as error:  # whatever it is, the other probes have something to say
        failed[name] = one_line(error)
        return default
