"""How much memory arrays take, and how much is free."""

from __future__ import annotations

import os
from dataclasses import dataclass

from wagma.doctor.machine import CGROUPS, available, memory_limit, text_of

__all__ = ["Room", "room", "shared_memory_of"]

HUGE_PAGE = 2 << 20
HUGE_MIN = 1 << 20  # of an array, or a rest of one, that takes a huge page


def shared_memory_of(array_bytes: int) -> int:
    """Bytes of shared memory that an array takes, where the system makes huge pages.

    Whole ones, but for a rest that is too short for one; without huge pages it is `array_bytes`.
    (`segment_array_memory` of the engine, without which this can be told.)

    Args:
        array_bytes: of its elements.
    """
    rest = array_bytes % HUGE_PAGE
    return array_bytes if rest < HUGE_MIN else array_bytes - rest + HUGE_PAGE


@dataclass(frozen=True)
class Room:
    """Free memory of this node in bytes.

    Attributes:
        shared: of /dev/shm.
        total: of all memory, shared or not.
    """

    shared: int
    total: int


def room() -> Room:
    """What can be used: nine tenths of what is free."""
    fs = os.statvfs("/dev/shm")
    total = available() or os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    group = memory_limit(CGROUPS, text_of("/proc/self/cgroup"))
    if group is not None:
        total = min(total, group.left)
    return Room(shared=fs.f_bavail * fs.f_frsize * 9 // 10, total=total * 9 // 10)
