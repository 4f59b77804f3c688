"""Probes of software: the engine, MPI and its launchers, what uses GPUs, versions."""

import ctypes
import itertools
import os
import platform
import re
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from wagma.doctor.facts import Engine, Gpu, Mpi
from wagma.doctor.machine import text_of
from wagma.launch import environment
from wagma.launch.libraries import are_several, mapped, mpi_libraries

CUPY = ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x")
PACKAGES = ("wagma", "numpy", "mpi4py", "torch")
OPEN_MPI = "Open MPI"  # as mpi4py calls it
_MPS_ENABLED = 133  # CU_DEVICE_ATTRIBUTE_MPS_ENABLED
LEVELS = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
# Variables of wagma that set no option, and what they set.
OTHER_VARIABLES = {
    "WAGMA_CMA": "whether ranks may read private arrays from each other's memory",
    "WAGMA_JOB": "the name of a job without MPI",
    "WAGMA_LOG_CONSOLE": "the level of what RankLogs shows",
    "WAGMA_LOG_LEVEL": "the level of RankLogs' files",
    "WAGMA_SIMD": "the level of the kernels",
    "WAGMA_TRACE": "the folder for timelines",
    "WAGMA_TRACE_LIMIT": "how many events a timeline keeps",
}


def one_line(error: BaseException) -> str:
    """Return an exception's text, with its type where that says more."""
    text = " ".join(str(error).split())
    known = isinstance(error, (ImportError, RuntimeError, OSError)) and text
    return text if known else f"{type(error).__name__}: {text}".removesuffix(": ")


def engine() -> Engine:
    """Return the extension, and whether the environment suits it."""
    try:
        from wagma.collectives import Options, _engine
        from wagma.collectives.options import ENVIRONMENT, OWN
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
        huge_pages=_engine.huge_pages(),
        options={variable: option for variable, (option, _) in ENVIRONMENT.items()},
        own=[variable for variable, (option, _) in ENVIRONMENT.items() if option in OWN],
        variables=OTHER_VARIABLES,
        options_error=wrong,
    )


def mpi() -> Mpi:
    """Start MPI, which can abort the process, unless another MPI's launcher started it."""
    mpiexec = _mpiexec()
    try:
        mpi = _load_mpi()
    except (ImportError, RuntimeError, OSError) as error:
        return Mpi(error=one_line(error), mpiexec=mpiexec)
    family, version = mpi.get_vendor()
    loaded = Mpi(
        family=family,
        version=".".join(map(str, version)),
        paths=mpi_libraries(),
        standard=mpi.Get_version(),
        mpiexec=mpiexec,
    )
    if not mpi.Is_initialized():
        foreign = _foreign_launcher(family, os.environ, pmix=bool(mapped("libpmix.so")))
        if foreign:
            return replace(loaded, foreign=foreign)
        _start_mpi(mpi)
    srun = environment.in_srun_step(os.environ)
    # Several MPIs are refused as well, and are a finding of their own.
    refused = "" if are_several(loaded.paths) else _refused(mpi.COMM_WORLD)
    level = mpi.Query_thread()
    return replace(
        loaded,
        thread_level=next(name for name in LEVELS if level == getattr(mpi, f"THREAD_{name}")),
        rank=mpi.COMM_WORLD.Get_rank(),
        size=mpi.COMM_WORLD.Get_size(),
        refused=refused,
        srun=srun,
        cuda=_mpi_cuda(loaded.paths),
        messages_error=_messages_error(),
    )


def _load_mpi() -> Any:
    """Import mpi4py.MPI, if possible before MPI is initialised, and without its own warnings."""
    import mpi4py

    mpi4py.rc(initialize=False, finalize=True)  # no effect if it was imported before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        from mpi4py import MPI
    return MPI


def _start_mpi(mpi: Any) -> None:
    """Call MPI_Init as mpi4py would; its import has set `rc` from MPI4PY_RC_*.

    The name is seen in the stack of a rank that hangs or crashes here.
    """
    from mpi4py import rc

    if rc.threads:
        mpi.Init_thread(getattr(mpi, f"THREAD_{rc.thread_level.upper()}"))
    else:
        mpi.Init()


def _foreign_launcher(family: str, environ: Mapping[str, str], *, pmix: bool) -> str:
    """Return the launcher of another MPI that has started this process; empty if there is none.

    Under such a launcher MPI either finds one rank, or aborts the process.

    Args:
        family: of the MPI that is loaded.
        environ: the environment.
        pmix: whether that MPI speaks PMIx, as Open MPI's launcher does.
    """
    if environment.OPEN_MPI.size in environ:
        return "" if family == OPEN_MPI or pmix else "Open MPI's mpiexec"
    # srun sets PMI_SIZE as well, and some builds of Open MPI understand it.
    by_slurm = environment.PMIX.rank in environ or environment.in_srun_step(environ)
    hydra = environment.HYDRA.size in environ and not by_slurm
    return "an mpiexec of MPICH's kind" if hydra and family == OPEN_MPI else ""


def _mpiexec() -> list[str]:
    beside = Path(sys.executable).with_name("mpiexec")
    found = [str(beside)] if beside.exists() else []
    on_path = shutil.which("mpiexec")
    return found + ([on_path] if on_path and on_path not in found else [])


def _refused(world: Any) -> str:
    """Return why a collective refuses the communicator; empty if it does not."""
    try:
        from wagma.collectives.communicator import check_communicator
    except ImportError:  # the engine is missing, which is a finding of its own
        return ""
    try:
        check_communicator(world)
    except RuntimeError as error:
        return str(error)
    return ""


def _messages_error() -> str:
    """Return why collectives cannot send messages; MPI has been started."""
    try:
        from wagma.collectives import transport

        transport.load()
    except ImportError as error:
        return one_line(error)
    return ""


def _mpi_cuda(paths: Sequence[str]) -> bool | None:
    """Return whether an initialised Open MPI or MPICH takes GPU memory; None: unknown."""
    for path in paths:
        query = getattr(ctypes.CDLL(path), "MPIX_Query_cuda_support", None)
        if query is not None:
            query.restype = ctypes.c_int
            return bool(query())
    return None


def versions() -> dict[str, str]:
    """Return the versions of Python and of relevant packages, by name."""
    found = {name: _version_of(name) or "none" for name in PACKAGES}
    return {"Python": platform.python_version(), **found}


def _version_of(package: str) -> str:
    """Return the version of an installed package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def gpu() -> Gpu:
    """Return the GPUs, and the software that can use them."""
    torch = _version_of("torch")
    cupy = next(filter(None, map(_version_of, CUPY)), "")
    if not (version := driver()):
        return Gpu(torch=torch, cupy=cupy)
    try:
        devices, error = _cuda_devices(), ""
    except (OSError, RuntimeError) as caught:
        return Gpu(driver=version, error=one_line(caught), torch=torch, cupy=cupy)
    torch_cuda = _torch_cuda() if torch and devices else None
    device, device_error = _device() if devices else ("", "")
    uuid = _uuid() if device else ""
    apart = _apart(devices)
    return Gpu(
        driver=version,
        devices=devices,
        error=error,
        torch=torch,
        torch_cuda=torch_cuda,
        cupy=cupy,
        device=device,
        device_error=device_error,
        uuid=uuid,
        mps=mps() if device else None,
        apart=apart,
    )


def _device() -> tuple[str, str]:
    """Return the name of the first GPU, and why the engine cannot use it."""
    try:
        from wagma.collectives._engine import Device

        device = Device(0)
        device.time_sums("float32", 1, 1, 1)  # compiles the kernels
        return device.name, ""
    except Exception as caught:  # the engine is missing, too
        return "", one_line(caught)


def _uuid() -> str:
    """Return the UUID of the first GPU, after the engine has opened it."""
    cuda, found, gpu = ctypes.CDLL("libcuda.so.1"), (ctypes.c_ubyte * 16)(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(gpu), 0)
    return "" if cuda.cuDeviceGetUuid_v2(found, gpu) else bytes(found).hex()


def mps() -> bool | None:
    """Return whether the first GPU's processes share it by MPS; None: the driver does not know."""
    cuda, found, gpu = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(gpu), 0)
    known = cuda.cuDeviceGetAttribute(ctypes.byref(found), _MPS_ENABLED, gpu) == 0
    return bool(found.value) if known else None


def driver() -> str:
    """Return the version of NVIDIA's driver; empty if there is none."""
    return _driver(text_of("/sys/module/nvidia/version"), text_of("/proc/driver/nvidia/version"))


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


def _apart(devices: int) -> tuple[int, ...]:
    """Return the first two GPUs that do not reach each other's memory; empty: all do."""
    cuda = ctypes.CDLL("libcuda.so.1")
    for one, other in itertools.permutations(range(devices), 2):
        reaches = ctypes.c_int(1)
        cuda.cuDeviceCanAccessPeer(ctypes.byref(reaches), one, other)
        if not reaches.value:
            return one, other
    return ()


def _torch_cuda() -> bool:
    try:
        import torch
    except (ImportError, OSError):
        return False
    return bool(torch.cuda.is_available())
