"""Where and with what was measured, as the header of a report says it."""

from __future__ import annotations

import itertools
import os
import platform
import shlex
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wagma.collectives._engine import simd_level
from wagma.doctor.machine import cpu_limit, text_of
from wagma.units import spans

from .computing import ARITHMETIC, SLEEPING
from .gpus import GPUS
from .kinds import NONBLOCKING
from .settings import Settings

if TYPE_CHECKING:
    from mpi4py import MPI

CGROUPS = Path("/sys/fs/cgroup")
LEVELS = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
FROM_C = ("mpi",)  # baselines that can be called from C
SOURCES = Path(__file__).resolve().parents[1]

Facts = dict[str, Any]


def gather(comm: MPI.Intracomm, gpu: Facts | None = None) -> list[Facts]:
    """Return what every rank knows about its place; collective.

    Host, cores (their numbers), CPU, the limit of CPUs of its control group, or None, and `gpu`:
    what it says of its GPU, or None.
    """
    own = {
        "host": socket.gethostname(),
        "cores": sorted(os.sched_getaffinity(0)),
        "cpu": cpu(),
        "cpu_limit": cpu_limit(CGROUPS, text_of("/proc/self/cgroup")),
        "gpu": gpu,
    }
    return comm.allgather(own)


def crowded_hosts(ranks: list[Facts]) -> list[str]:
    """Return a sentence for each host whose ranks outnumber their cores."""
    found = []
    for host, of_host in _by_host(ranks).items():
        why = _crowded([ranks[rank] for rank in of_host], of_host)
        if why is not None:
            found.append(
                f"{host}: {why}: times are those of the scheduler; start fewer ranks, or bind them "
                "to cores of their own"
            )
    return found


def fullest(ranks: list[Facts]) -> int:
    """Return how many ranks are on the host that has most of them."""
    return max(map(len, _by_host(ranks).values()))


def _crowded(places: list[Facts], ranks: list[int]) -> str | None:
    """Return why ranks of one host lack a core each: the engine's rule (csrc/shm/cores.c).

    Ranks may share affinity masks or have distinct ones. Overlapping masks may contend for cores.
    """
    sharing: dict[frozenset[int], list[int]] = {}
    for rank, place in zip(ranks, places, strict=True):
        sharing.setdefault(frozenset(place["cores"]), []).append(rank)
    for cores, of_cores in sharing.items():
        if len(of_cores) > len(cores):
            return f"{len(of_cores)} ranks share {len(cores)} cores"
    for (one, first), (other, second) in itertools.combinations(sharing.items(), 2):
        if one & other:
            here, there = spans(sorted(one)), spans(sorted(other))
            return f"rank {first[0]} may run on cores {here} and rank {second[0]} on {there}"
    limits = [place["cpu_limit"] for place in places if place["cpu_limit"] is not None]
    if limits and min(limits) < len(ranks):
        return f"{len(ranks)} ranks have the time of {min(limits):g} CPUs, by their control group"
    return None


def environment(settings: Settings, ranks: list[Facts], over: str, warnings: list[str]) -> Facts:
    """Return the header of a benchmark of collectives: `surroundings`, and how calls are made."""
    calls = {"loop": _loop(settings), **_computing(settings, ranks)}
    return surroundings(ranks, over, warnings, calls)


def surroundings(
    ranks: list[Facts], over: str, warnings: list[str], calls: Facts | None = None
) -> Facts:
    """Return the header, as JSON values: this rank's software and load, all ranks' hosts and cores.

    Args:
        ranks: of `gather`.
        over: transport of wagma's messages, "shm" or "mpi".
        warnings: what the reader has to know.
        calls: what else there is to say, how calls are made.
    """
    from mpi4py import MPI

    from .subjects.mpi import library_version

    level = MPI.Query_thread()
    packages = ["wagma", "numpy", "mpi4py", *(["torch"] if "torch" in sys.modules else [])]
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": command_line(),
        "ranks": len(ranks),
        "mpi": {
            "library": library_version(),
            "standard": ".".join(map(str, MPI.Get_version())),
            "thread_level": next(n for n in LEVELS if level == getattr(MPI, f"THREAD_{n}")),
        },
        "versions": {
            "python": platform.python_version(),
            **{package: metadata.version(package) for package in packages},
        },
        "commit": commit(),
        "transport": over,
        **_variables(),
        "simd": simd_level(),
        **(calls or {}),
        "kernel": platform.release(),
        "hosts": [
            {
                "host": host,
                "ranks": spans(of_host),
                "cores": len({core for rank in of_host for core in ranks[rank]["cores"]}),
                "cpu": ranks[of_host[0]]["cpu"],
            }
            for host, of_host in _by_host(ranks).items()
        ],
        **_gpus(ranks),
        "binding": [
            {"rank": rank, "cores": spans(facts["cores"])} for rank, facts in enumerate(ranks)
        ],
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "warnings": warnings,
    }


def _gpus(ranks: list[Facts]) -> Facts:
    """Return the GPUs, and which ranks' arrays are on each."""
    gpus: dict[tuple[Any, ...], list[int]] = {}
    for rank, facts in enumerate(ranks):
        if gpu := facts.get("gpu"):
            gpus.setdefault((facts["host"], *gpu.items()), []).append(rank)
    found = [
        {"host": host, "ranks": spans(of_gpu), **dict(gpu)} for (host, *gpu), of_gpu in gpus.items()
    ]
    return {"gpus": found} if found else {}


def _by_host(ranks: list[Facts]) -> dict[str, list[int]]:
    hosts: dict[str, list[int]] = {}
    for rank, facts in enumerate(ranks):
        hosts.setdefault(facts["host"], []).append(rank)
    return hosts


def _variables() -> Facts:
    """Return what this rank's environment tells wagma."""
    found = {name: os.environ[name] for name in sorted(os.environ) if name.startswith("WAGMA_")}
    return {"variables": found} if found else {}


def _loop(settings: Settings) -> str:
    if settings.kind in NONBLOCKING or settings.loop == "python" or settings.buffer in GPUS:
        return "Python"
    if settings.loop == "c":
        return "C"
    only = [name for name in settings.baselines if name not in FROM_C]
    if only:
        return f"Python, since {', '.join(only)} cannot be called from C"
    return f"C up to {settings.c_loop_bytes} bytes, then Python"


def _computing(settings: Settings, ranks: list[Facts]) -> Facts:
    """Return what the ranks compute between posting and waiting."""
    if settings.kind not in NONBLOCKING:
        return {}
    return {"computing": SLEEPING if crowded_hosts(ranks) else ARITHMETIC}


def cpu() -> str:
    """Return the processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def command_line() -> str:
    """Return this process's command line for a shell; the launcher's own part is unknown."""
    interpreter, *words = sys.orig_argv
    return shlex.join([Path(interpreter).name, *words])


def commit() -> str | None:
    """Return the source tree's commit, with "-dirty" if changed; None where installed."""
    if not (SOURCES / "pyproject.toml").exists():
        return None
    command = ["git", "-C", str(SOURCES), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
