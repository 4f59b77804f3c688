"""Probes of the machine: processors, memory, GPUs, the clock."""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from pathlib import Path

from wagma.doctor.control_groups import cpu_limit, memory_limit
from wagma.doctor.facts import Clock, Cpus, Gpu, Memory
from wagma.doctor.software import version_of
from wagma.doctor.texts import one_line, text_of

__all__ = ["clock", "cpus", "gpu", "memory"]

SHM = Path("/dev/shm")
CGROUPS = Path("/sys/fs/cgroup")
CUPY = ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x")


def cpus() -> Cpus:
    """Processors that this process may run on."""
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
    """Memory of the machine and of this process's control group, shared memory, pages."""
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
        available=_available(text_of("/proc/meminfo")),
        group=group.inode if group else 0,
        group_limit=group.limit if group else 0,
        group_left=group.left if group else 0,
        thp=_bracketed(text_of(pages / "enabled")),
        thp_shmem=_bracketed(text_of(pages / "shmem_enabled")),
        ptrace_scope=int(scope) if scope.isdecimal() else None,
    )


def _available(meminfo: str) -> int:
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _huge(mountinfo: str, device: int) -> str:
    """The option "huge" of the tmpfs with this device number, "never" if it has none.

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
    """The choice that is in force: "madvise" of ``always [madvise] never``."""
    return text.partition("[")[2].partition("]")[0]


def gpu() -> Gpu:
    """GPUs and what there is to use them."""
    torch = version_of("torch")
    cupy = next(filter(None, map(version_of, CUPY)), "")
    driver = _driver(text_of("/sys/module/nvidia/version"), text_of("/proc/driver/nvidia/version"))
    if not driver:
        return Gpu(torch=torch, cupy=cupy)
    try:
        devices, error = _cuda_devices(), ""
    except (OSError, RuntimeError) as caught:
        return Gpu(driver=driver, error=one_line(caught), torch=torch, cupy=cupy)
    torch_cuda = _torch_cuda() if torch and devices else None
    return Gpu(
        driver=driver, devices=devices, error=error, torch=torch, torch_cuda=torch_cuda, cupy=cupy
    )


def _driver(module: str, proc: str) -> str:
    """Version of NVIDIA's driver, of what the kernel says in either place."""
    found = re.search(r" {2}(\d[\d.]+) {2}", proc)
    return module or (found[1] if found else "")


def _cuda_devices() -> int:
    cuda = ctypes.CDLL("libcuda.so.1")
    status = cuda.cuInit(0)
    count = ctypes.c_int(0)
    if status == 0:
        status = cuda.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        raise RuntimeError(f"the CUDA driver's cuInit or cuDeviceGetCount returned error {status}")
    return count.value


def _torch_cuda() -> bool:
    try:
        import torch
    except (ImportError, OSError):
        return False
    return bool(torch.cuda.is_available())


def clock() -> Clock:
    """The time namespace."""
    try:
        return Clock(namespace=Path("/proc/self/ns/time").readlink().name)
    except OSError:
        return Clock()
