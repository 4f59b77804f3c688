"""The header of a report: where and with what it was measured."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from plan import Room

__all__ = ["cores", "header", "room"]

ROOT = Path(__file__).resolve().parents[1]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def room() -> Room:
    """Memory that can be used: nine tenths of what is free."""
    fs = os.statvfs("/dev/shm")
    available = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    return Room(shared=fs.f_bavail * fs.f_frsize * 9 // 10, total=available * 9 // 10)


def header() -> dict[str, Any]:
    """Machine, software and load at this moment."""
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "cpu": _cpu(),
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "wagma": metadata.version("wagma"),
        "numpy": metadata.version("numpy"),
        "mpi4py": metadata.version("mpi4py"),
        "commit": _commit(),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str | None:
    """Of the source tree, with "-dirty" if it was changed; None outside of a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None
