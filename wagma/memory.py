"""How much memory arrays take, and how much is free."""

import os
from dataclasses import dataclass
from typing import Any

from wagma.doctor.machine import CGROUPS, available, memory_limit, text_of

_FLOAT32 = 0  # wagma_dtype of csrc/include/wagma_options.h


def handle_memory(array_bytes: int, ranks: int, quorum: Any) -> tuple[int, int]:
    """Return the bytes of shared memory that the arrays of one rank of a handle take.

    Args:
        array_bytes: of the array that is reduced.
        ranks: of the handle.
        quorum: a number of ranks, "all" or "majority".

    Returns:
        At creation, and at most with the default options: late="skip", activation="world" and
        groups of two can need more. Some kilobytes of words come on top.
    """
    from wagma.collectives import Options, _engine

    count = -(-array_bytes // 4)
    first, most = _engine.segment_memory(Options(quorum=quorum).engine(ranks, count, _FLOAT32))
    return first, most


def shared_memory_of(array_bytes: int) -> int:
    """Return the bytes of shared memory that an array takes: whole pages, perhaps huge ones."""
    return handle_memory(array_bytes, 2, "all")[0]


@dataclass(frozen=True)
class Room:
    """Free memory of this node in bytes."""

    shared: int  # of /dev/shm
    total: int  # of all memory, shared or not


def room() -> Room:
    """Return the bytes that can be used: nine tenths of what is free."""
    fs = os.statvfs("/dev/shm")
    total = available() or os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    group = memory_limit(CGROUPS, text_of("/proc/self/cgroup"))
    if group is not None:
        total = min(total, group.left)
    return Room(shared=fs.f_bavail * fs.f_frsize * 9 // 10, total=total * 9 // 10)
