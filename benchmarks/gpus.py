"""This rank's GPU through the library that makes the arrays: torch, or CuPy.

Work is queued on the library's current stream, which is the caller's stream of wagma's calls.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from wagma.collectives._engine import Device
from wagma.collectives.errors import WagmaError
from wagma.doctor.software import driver
from wagma.launch.agreement import InputError
from wagma.launch.packages import missing

from .contributions import Contributions, Vector

SIMULATION = "simulation"  # name of the simulated GPUs of the tests


class Gpu(ABC):
    """A GPU that a rank's arrays are on; several ranks may have the same one.

    Args:
        rank: that uses the GPU of this number, modulo the GPUs that are visible.

    Attributes:
        index: number of the GPU, as CUDA counts in this process.
        library: the module that makes its arrays.

    Raises:
        InputError: the library or the GPU is missing; says what to do.
    """

    package: str  # that is imported
    buffer: str  # name on the command line

    def __init__(self, rank: int) -> None:
        if said := missing(self.package):
            raise InputError(f"--buffer {self.buffer}: {said}")
        self.library: Any = import_module(self.package)
        try:
            count = self._count()
        except Exception as error:  # each library has its own
            raise self._without(str(error)) from None
        if count == 0:
            raise self._without("none is visible")
        self.index = rank % count
        self._use()
        self._event = self.library.cuda.Event()

    def _without(self, why: str) -> InputError:
        return InputError(
            f"--buffer {self.buffer}: {self.package} finds no GPU ({' '.join(why.split())}): "
            "python -m wagma doctor says what is missing; or pass --buffer numpy"
        )

    @cached_property
    def name(self) -> str:
        """Return the GPU's name; InputError if the engine does not find its devices there."""
        try:
            found: str = Device(self.index).name
        except (WagmaError, MemoryError, ValueError) as error:
            raise InputError(f"--buffer {self.buffer}: {error}") from None
        return found

    @property
    def simulated(self) -> bool:
        """Return whether there is no GPU behind it, so that times mean nothing."""
        return self.name == SIMULATION

    def facts(self) -> dict[str, Any]:
        """Return what the header of a report says of it."""
        versions = {"driver": driver() or "none", "cuda": self._cuda()}
        return {"gpu": self.name, **versions, "arrays": self.buffer}

    @abstractmethod
    def _count(self) -> int:
        """Return the number of visible GPUs."""

    @abstractmethod
    def _use(self) -> None:
        """Make the GPU the current one of the library."""

    @abstractmethod
    def _cuda(self) -> str:
        """Return the version of the CUDA runtime that the library uses."""

    @abstractmethod
    def array(self, host: Vector, datatype: str = "") -> Any:
        """Return a new array on the GPU with these elements, or bits of "bfloat16"."""

    @abstractmethod
    def taken(self, array: Any) -> Any:
        """Return the library's array over memory of the engine, without a copy."""

    @abstractmethod
    def pinned(self, like: Vector) -> Vector:
        """Return a new array of the host that the GPU reaches by itself."""

    @abstractmethod
    def to_host(self, out: Vector, x: Any) -> None:
        """Copy; return when it is done."""

    @abstractmethod
    def to_gpu(self, out: Any, x: Vector) -> None:
        """Queue a copy."""

    @abstractmethod
    def copy(self, out: Any, x: Any) -> None:
        """Queue a copy within the GPU's memory."""

    def finish(self) -> None:
        """Return when all is done that was queued on the current stream, by an event."""
        self._event.record()
        self._event.synchronize()


class TorchGpu(Gpu):
    """A GPU with torch's tensors."""

    package = "torch"
    buffer = "torch-cuda"

    def _count(self) -> int:
        return int(self.library.cuda.device_count())

    def _use(self) -> None:
        self.library.cuda.set_device(self.index)

    def _cuda(self) -> str:
        return str(self.library.version.cuda)

    def array(self, host: Vector, datatype: str = "") -> Any:
        """See `Gpu`."""
        found = self.library.from_numpy(host).cuda()
        return found.view(self.library.bfloat16) if datatype == "bfloat16" else found

    def taken(self, array: Any) -> Any:
        """See `Gpu`."""
        return self.library.from_dlpack(array)

    def pinned(self, like: Vector) -> Vector:
        """See `Gpu`."""
        found: Vector = self.library.from_numpy(like).pin_memory().numpy()
        return found

    def to_host(self, out: Vector, x: Any) -> None:
        """See `Gpu`."""
        self.library.from_numpy(out).view(x.dtype).copy_(x)

    def to_gpu(self, out: Any, x: Vector) -> None:
        """See `Gpu`."""
        out.copy_(self.library.from_numpy(x).view(out.dtype), non_blocking=True)

    def copy(self, out: Any, x: Any) -> None:
        """See `Gpu`."""
        out.copy_(x)


class CupyGpu(Gpu):
    """A GPU with CuPy's arrays."""

    package = buffer = "cupy"

    def _count(self) -> int:
        return int(self.library.cuda.runtime.getDeviceCount())

    def _use(self) -> None:
        self.library.cuda.Device(self.index).use()

    def _cuda(self) -> str:
        version = self.library.cuda.runtime.runtimeGetVersion()
        return f"{version // 1000}.{version % 1000 // 10}"

    def array(self, host: Vector, datatype: str = "") -> Any:  # noqa: ARG002, bfloat16 is refused
        """See `Gpu`."""
        return self.library.asarray(host)

    def taken(self, array: Any) -> Any:
        """See `Gpu`."""
        return self.library.asarray(array)

    def pinned(self, like: Vector) -> Vector:
        """See `Gpu`."""
        memory = self.library.cuda.alloc_pinned_memory(like.nbytes)
        return np.frombuffer(memory, like.dtype, like.size).reshape(like.shape)

    def to_host(self, out: Vector, x: Any) -> None:
        """See `Gpu`."""
        x.get(out=out)

    def to_gpu(self, out: Any, x: Vector) -> None:
        """See `Gpu`."""
        out.set(x)

    def copy(self, out: Any, x: Any) -> None:
        """See `Gpu`."""
        self.library.copyto(out, x)


GPUS: dict[str, type[Gpu]] = {one.buffer: one for one in (TorchGpu, CupyGpu)}


class Inputs:
    """Writes the contributions of `Contributions` into arrays on a GPU, on the GPU.

    Args:
        gpu: on which the arrays are.
        contributions: what is written, of at least one element.
    """

    def __init__(self, gpu: Gpu, contributions: Contributions) -> None:
        self.gpu = gpu
        self.datatype = contributions.datatype
        self._contributions = contributions
        self._table = gpu.array(contributions.table, self.datatype)

    def array(self, host: Vector) -> Any:
        """Return a new array on the GPU with these elements."""
        return self.gpu.array(host, self.datatype)

    def write(self, x: Any, rank: int, version: int) -> None:
        """Queue what `Contributions.write` does."""
        row = self._table[self._contributions.row(rank, version)]
        whole = len(x) // len(row) * len(row)
        x[:whole].reshape(-1, len(row))[...] = row
        x[whole:] = row[: len(x) - whole]

    def read(self, x: Any) -> Vector:
        """Return a copy of `x` on the host, in the storage dtype."""
        host = np.empty(self._contributions.count, self._contributions.storage)
        self.gpu.to_host(host, x)
        return host
