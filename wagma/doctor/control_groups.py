"""Limits of control groups: of this process's own group and of those around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wagma.doctor.texts import text_of

__all__ = ["MemoryLimit", "cpu_limit", "memory_limit"]

NO_LIMIT = 1 << 60  # version 1 says "no limit" by a number of this kind
# The page cache on these lists is given up when memory is wanted; files of a tmpfs are not on them.
RECLAIMABLE = ("inactive_file", "active_file")


class MemoryLimit(NamedTuple):
    """The control group that has the least memory left.

    Attributes:
        inode: of the group: ranks with the same one share its memory.
        limit: in bytes.
        left: of that, in bytes; page cache that can be given up counts as left.
    """

    inode: int
    limit: int
    left: int


def cpu_limit(root: Path, cgroups: str) -> float | None:
    """The lowest limit of this process's control group and of those around it, in CPUs.

    Args:
        root: where the control groups are mounted; in a container its own is at the root.
        cgroups: the content of /proc/self/cgroup, lines ``ID:CONTROLLERS:PATH``.
    """
    limits = []
    for version, folder in _groups(root, cgroups, "cpu"):
        limits += (_quota_v2 if version == 2 else _quota_v1)(folder)
    return min(limits, default=None)


def memory_limit(root: Path, cgroups: str) -> MemoryLimit | None:
    """Of this process's control group and of those around it, the one with the least memory left.

    Args:
        root: as for `cpu_limit`.
        cgroups: likewise.
    """
    found = []
    for version, folder in _groups(root, cgroups, "memory"):
        names = ("max", "current") if version == 2 else ("limit_in_bytes", "usage_in_bytes")
        limit, used = (text_of(folder / f"memory.{name}") for name in names)
        if limit.isdecimal() and used.isdecimal() and int(limit) < NO_LIMIT:
            total = "" if version == 2 else "total_"  # with the groups below it
            cache = _sum_of(folder / "memory.stat", [total + name for name in RECLAIMABLE])
            left = max(int(limit) - int(used) + cache, 0)
            found.append(MemoryLimit(folder.stat().st_ino, int(limit), left))
    return min(found, key=lambda limit: limit.left, default=None)


def _groups(root: Path, cgroups: str, controller: str) -> Iterator[tuple[int, Path]]:
    """Versions and folders of the groups that may limit a controller, from this process's out."""
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            version, mount = 2, root
        elif controller in controllers.split(","):
            version, mount = 1, root / controller
        else:
            continue
        group = mount / path.strip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(mount):
                break
            yield version, folder


def _quota_v2(group: Path) -> list[float]:
    """Of ``cpu.max``: ``max 100000`` or ``150000 100000``."""
    quota, _, period = text_of(group / "cpu.max").partition(" ")
    return [int(quota) / int(period)] if quota.isdecimal() and int(period or 0) > 0 else []


def _quota_v1(group: Path) -> list[float]:
    quota, period = (text_of(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return [int(quota) / int(period)] if quota.isdecimal() and int(period or 0) > 0 else []


def _sum_of(stat: Path, names: list[str]) -> int:
    """The sum of some lines ``NAME NUMBER``."""
    words = (line.split() for line in text_of(stat).splitlines())
    return sum(int(pair[1]) for pair in words if len(pair) == 2 and pair[0] in names)
