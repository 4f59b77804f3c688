"""Facts of this process: everything that asks the system, MPI or a library.

No probe raises anything: what fails is noted, and its facts stay at their defaults.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from wagma.doctor.facts import Clock, Cpus, Engine, Gpu, Memory, Mpi, RankFacts

__all__ = ["one_line", "probe_machine", "probe_mpi"]

T = TypeVar("T")

SHM = Path("/dev/shm")
PACKAGES = ("wagma", "numpy", "mpi4py", "torch")
OPEN_MPI = "Open MPI"  # as mpi4py calls it
MPI_LIBRARIES = ("libmpi.so", "libmpi_abi.so", "libmpich.so", "libmpi_cray.so")
LEVELS = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
# Besides all that begin with WAGMA_.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "I_MPI_OFFLOAD",
    "MPICH_GPU_SUPPORT_ENABLED",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMP_NUM_THREADS",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "RANK",
    "SLURM_JOB_ID",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "UCX_TLS",
    "WORLD_SIZE",
)
CUPY = ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x")
# Variables of wagma that set no option, and what they set.
OTHER_VARIABLES = {
    "WAGMA_JOB": "the name of a job without MPI",
    "WAGMA_SIMD": "the level of the kernels",
}


def probe_machine() -> RankFacts:
    """Facts of this process without MPI, as if it were alone in its job."""
    failed: dict[str, str] = {}
    return RankFacts(
        engine=_attempt("engine", _engine, Engine(), failed),
        host=_attempt("host", socket.gethostname, "", failed),
        machine=_text("/proc/sys/kernel/random/boot_id"),
        versions=_attempt("versions", _versions, {}, failed),
        environment={
            name: value
            for name, value in sorted(os.environ.items())
            if name in VARIABLES or name.startswith("WAGMA_")
        },
        cpus=_attempt("cores", _cpus, Cpus(affinity=(), online=0), failed),
        memory=_attempt("memory", _memory, Memory(), failed),
        gpu=_attempt("GPU", _gpu, Gpu(), failed),
        clock=_attempt("clock", _clock, Clock(), failed),
        failed=failed,
    )


def probe_mpi(own: RankFacts) -> RankFacts:
    """`own` with what is known once MPI has started, which can abort the process."""
    failed = dict(own.failed)
    return replace(own, mpi=_attempt("MPI", _mpi, Mpi(), failed), failed=failed)


def _attempt(name: str, function: Callable[[], T], default: T, failed: dict[str, str]) -> T:
    try:
        return function()
    except Exception as error:  # whatever it is, the other probes have something to say
        failed[name] = one_line(error)
        return default


def one_line(error: BaseException) -> str:
    """An exception's text, with its type where that says more."""
    text = " ".join(str(error).split())
    known = isinstance(error, (ImportError, RuntimeError, OSError)) and text
    return text if known else f"{type(error).__name__}: {text}".removesuffix(": ")


def _text(path: str | Path) -> str:
    """A small file's content; empty if it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


# ---- software ------------------------------------------------------------------------------------


def _engine() -> Engine:
    try:
        from wagma.collectives import Options, _engine
        from wagma.collectives.options import ENVIRONMENT
    except ImportError as error:
        return Engine(error=one_line(error))
    wrong = ""
    try:
        _engine.check_options(Options().with_environment().engine(1, 1, 0))
    except (TypeError, ValueError) as error:
        wrong = str(error)
    return Engine(
        abi=_engine.ABI_VERSION,
        simd=_engine.simd_level(),
        options={variable: option for variable, (option, _) in ENVIRONMENT.items()},
        variables=OTHER_VARIABLES,
        options_error=wrong,
    )


def _mpi() -> Mpi:
    mpiexec = _mpiexec()
    try:
        mpi = _load_mpi()
    except (ImportError, RuntimeError, OSError) as error:
        return Mpi(error=one_line(error), mpiexec=mpiexec)
    family, version = mpi.get_vendor()
    loaded = Mpi(
        family=family,
        version=".".join(map(str, version)),
        paths=_mapped(*MPI_LIBRARIES),
        standard=mpi.Get_version(),
        mpiexec=mpiexec,
    )
    if not mpi.Is_initialized():
        foreign = _foreign_launcher(family, os.environ, pmix=bool(_mapped("libpmix.so")))
        if foreign:
            return replace(loaded, foreign=foreign)
        _start(mpi)
    refused, srun = _refused(mpi.COMM_WORLD)
    level = mpi.Query_thread()
    return replace(
        loaded,
        thread_level=next(name for name in LEVELS if level == getattr(mpi, f"THREAD_{name}")),
        rank=mpi.COMM_WORLD.Get_rank(),
        size=mpi.COMM_WORLD.Get_size(),
        refused=refused,
        srun=srun,
        cuda=_mpi_cuda(loaded.paths),
    )


def _load_mpi() -> Any:
    """mpi4py.MPI, if possible before MPI is initialised, and without its own warnings."""
    import mpi4py

    mpi4py.rc(initialize=False, finalize=True)  # no effect if it was imported before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        from mpi4py import MPI
    return MPI


def _start(mpi: Any) -> None:
    """MPI_Init, at the thread level that mpi4py is configured for."""
    from mpi4py import rc

    mpi.Init_thread(getattr(mpi, f"THREAD_{rc.thread_level.upper()}"))


def _foreign_launcher(family: str, environ: Mapping[str, str], *, pmix: bool) -> str:
    """The launcher of another MPI that has started this process; empty if there is none.

    Under such a launcher MPI either finds one rank, or aborts the process.

    Args:
        family: of the MPI that is loaded.
        environ: the environment.
        pmix: whether that MPI speaks PMIx, as Open MPI's launcher does.
    """
    if "OMPI_COMM_WORLD_SIZE" in environ:
        return "" if family == OPEN_MPI or pmix else "Open MPI's mpiexec"
    # srun sets PMI_SIZE as well, and some builds of Open MPI understand it.
    hydra = "PMI_SIZE" in environ and not {"PMIX_RANK", "SLURM_STEP_ID"} & environ.keys()
    return "an mpiexec of MPICH's kind" if hydra and family == OPEN_MPI else ""


def _mpiexec() -> list[str]:
    beside = Path(sys.executable).with_name("mpiexec")
    found = [str(beside)] if beside.exists() else []
    on_path = shutil.which("mpiexec")
    return found + ([on_path] if on_path and on_path not in found else [])


def _mapped(*names: str) -> list[str]:
    """Files in this process's memory whose names begin with one of these."""
    paths = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith(names):
            paths.add(f"/{path}")
    return sorted(paths)


def _refused(world: Any) -> tuple[str, bool]:
    """Why a collective refuses the communicator, and whether srun started this process."""
    try:
        from wagma.collectives.mpi import check_communicator, in_srun_step
    except ImportError:  # the engine is missing, which is a finding of its own
        return "", False
    srun = in_srun_step(os.environ)
    try:
        check_communicator(world)
    except RuntimeError as error:
        return str(error), srun
    return "", srun


def _mpi_cuda(paths: Sequence[str]) -> bool | None:
    """What Open MPI and MPICH can be asked; they have to be initialised."""
    for path in paths:
        query = getattr(ctypes.CDLL(path), "MPIX_Query_cuda_support", None)
        if query is not None:
            query.restype = ctypes.c_int
            return bool(query())
    return None


def _versions() -> dict[str, str]:
    found = {name: _version_of(name) or "none" for name in PACKAGES}
    return {"Python": platform.python_version(), **found}


def _version_of(package: str) -> str:
    """Of an installed package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


# ---- machine -------------------------------------------------------------------------------------


def _cpus() -> Cpus:
    affinity = sorted(os.sched_getaffinity(0))
    core_of = {}
    for cpu in affinity:
        siblings = _text(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        first = siblings.replace("-", ",").partition(",")[0]
        core_of[cpu] = int(first) if first.isdecimal() else cpu
    return Cpus(
        affinity=affinity,
        online=os.cpu_count() or len(affinity),
        core_of=core_of,
        limit=_cpu_limit(Path("/sys/fs/cgroup"), _text("/proc/self/cgroup")),
    )


def _cpu_limit(root: Path, cgroups: str) -> float | None:
    """The lowest limit of this process's control group and of those around it, in CPUs.

    Args:
        root: where the control groups are mounted; in a container its own is at the root.
        cgroups: the content of /proc/self/cgroup, lines ``ID:CONTROLLERS:PATH``.
    """
    limits = []
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, read = root, _quota_v2
        elif "cpu" in controllers.split(","):
            mount, read = root / "cpu", _quota_v1
        else:
            continue
        group = mount / path.strip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(mount):
                break
            limits += read(folder)
    return min(limits, default=None)


def _quota_v2(group: Path) -> list[float]:
    """Of ``cpu.max``: ``max 100000`` or ``150000 100000``."""
    quota, _, period = _text(group / "cpu.max").partition(" ")
    return [int(quota) / int(period)] if quota.isdecimal() and int(period or 0) > 0 else []


def _quota_v1(group: Path) -> list[float]:
    quota, period = (_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return [int(quota) / int(period)] if quota.isdecimal() and int(period or 0) > 0 else []


def _memory() -> Memory:
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
    scope = _text("/proc/sys/kernel/yama/ptrace_scope")
    pages = Path("/sys/kernel/mm/transparent_hugepage")
    return Memory(
        shm_error=error,
        shm_device=device,
        shm_bytes=size,
        shm_free=free,
        available=_available(_text("/proc/meminfo")),
        thp=_bracketed(_text(pages / "enabled")),
        thp_shmem=_bracketed(_text(pages / "shmem_enabled")),
        ptrace_scope=int(scope) if scope.isdecimal() else None,
    )


def _available(meminfo: str) -> int:
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _bracketed(text: str) -> str:
    """The choice that is in force: "madvise" of ``always [madvise] never``."""
    return text.partition("[")[2].partition("]")[0]


def _gpu() -> Gpu:
    torch = _version_of("torch")
    cupy = next(filter(None, map(_version_of, CUPY)), "")
    driver = _driver(_text("/sys/module/nvidia/version"), _text("/proc/driver/nvidia/version"))
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


def _clock() -> Clock:
    try:
        return Clock(namespace=Path("/proc/self/ns/time").readlink().name)
    except OSError:
        return Clock()
