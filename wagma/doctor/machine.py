"""Probes of the machine: processors, memory, control groups, the clock."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wagma.doctor.facts import Clock, Cpus, Memory

SHM = Path("/dev/shm")
CGROUPS = Path("/sys/fs/cgroup")


def text_of(path: str | Path) -> str:
    """Return a small file's content; empty if it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def cpus() -> Cpus:
    """Return the processors that this process may run on."""
    affinity = sorted(os.sched_getaffinity(0))
    core_of = {}
    for cpu in affinity:
        siblings = text_of(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        first = siblings.replace("-", ",").partition(",")[0]
        core_of[cpu] = int(first) if first.isdecimal() else cpu
    return Cpus(
        affinity=affinity,
        online=os.cpu_count() or len(affinity),
        core_of=core_of,
        limit=cpu_limit(CGROUPS, text_of("/proc/self/cgroup")),
    )


def memory() -> Memory:
    """Return the memory of the machine and of this process's control group, and its pages."""
    error = ""
    device = size = free = 0
    try:
        device = SHM.stat().st_dev
        system = os.statvfs(SHM)
        size, free = system.f_blocks * system.f_frsize, system.f_bavail * system.f_frsize
        with tempfile.TemporaryFile(prefix="wagma-doctor-", dir=SHM) as file:
            os.posix_fallocate(file.fileno(), 0, 1)
    except OSError as caught:
        error = caught.strerror or str(caught)
    scope = text_of("/proc/sys/kernel/yama/ptrace_scope")
    group = memory_limit(CGROUPS, text_of("/proc/self/cgroup"))
    pages = Path("/sys/kernel/mm/transparent_hugepage")
    return Memory(
        shm_error=error,
        shm_device=device,
        shm_bytes=size,
        shm_free=free,
        shm_huge=_huge(text_of("/proc/self/mountinfo"), device),
        available=available(),
        group=group.inode if group else 0,
        group_limit=group.limit if group else 0,
        group_left=group.left if group else 0,
        thp=_bracketed(text_of(pages / "enabled")),
        thp_shmem=_bracketed(text_of(pages / "shmem_enabled")),
        ptrace_scope=int(scope) if scope.isdecimal() else None,
    )


def available() -> int:
    """Return MemAvailable of the system in bytes; 0: unknown."""
    for line in text_of("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _huge(mountinfo: str, device: int) -> str:
    """Return the option "huge" of the tmpfs with this device number, "never" if it has none.

    Args:
        mountinfo: lines ``ID PARENT MAJOR:MINOR ROOT POINT OPTIONS ... - tmpfs SOURCE OPTIONS``.
        device: its number; empty is returned if it is no tmpfs.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        kind, _, options = system.partition(" ")
        if mount.split()[2] == number and kind == "tmpfs":
            of = dict(option.partition("=")[::2] for option in options.split()[-1].split(","))
            return of.get("huge", "never")
    return ""


def _bracketed(text: str) -> str:
    """Return the choice that is in force: "madvise" of ``always [madvise] never``."""
    return text.partition("[")[2].partition("]")[0]


def clock() -> Clock:
    """Return the clock: its time namespace."""
    try:
        return Clock(namespace=Path("/proc/self/ns/time").readlink().name)
    except OSError:
        return Clock()


# ---- control groups: of this process, and those around it ----------------------------------------

NO_LIMIT = 1 << 60  # version 1 says "no limit" by a number of this kind
# The page cache on these lists is given up when memory is wanted; files of a tmpfs are not on them.
RECLAIMABLE = ("inactive_file", "active_file")


class MemoryLimit(NamedTuple):
    """The control group that has the least memory left."""

    inode: int  # of the group: ranks with the same one share its memory
    limit: int  # in bytes
    left: int  # of that, in bytes; page cache that can be given up counts as left


def cpu_limit(root: Path, cgroups: str) -> float | None:
    """Return the lowest limit of this process's control group and of those around it, in CPUs.

    Args:
        root: where the control groups are mounted; in a container its own is at the root.
        cgroups: the content of /proc/self/cgroup, lines ``ID:CONTROLLERS:PATH``.
    """
    limits = []
    for version, folder in _groups(root, cgroups, "cpu"):
        limits += (_quota_v2 if version == 2 else _quota_v1)(folder)
    return min(limits, default=None)


def memory_limit(root: Path, cgroups: str) -> MemoryLimit | None:
    """Return the limit of the control group, or of one around it, with the least memory left.

    The arguments are those of `cpu_limit`.
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
    """Return the cores that ``cpu.max`` permits: ``max 100000`` or ``150000 100000``."""
    quota, _, period = text_of(group / "cpu.max").partition(" ")
    return [int(quota) / int(period)] if quota.isdecimal() and int(period or 0) > 0 else []


def _quota_v1(group: Path) -> list[float]:
    quota, period = (text_of(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return [int(quota) / int(period)] if quota.isdecimal() and int(period or 0) > 0 else []


def _sum_of(stat: Path, names: list[str]) -> int:
    """Return the sum of some lines ``NAME NUMBER``."""
    words = (line.split() for line in text_of(stat).splitlines())
    return sum(int(pair[1]) for pair in words if len(pair) == 2 and pair[0] in names)
