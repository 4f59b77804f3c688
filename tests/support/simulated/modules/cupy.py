"""CuPy as benchmarks and tests of GPUs use it, with arrays on simulated GPUs.

Programs find it by PYTHONPATH. A process that lets work overtake what it has to wait for ends with
status 9. SIMULATED_GPUS is the number of GPUs, SIMULATED_FINISH the seconds that work takes, or
more.
"""

import atexit
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.append(str(Path(__file__).resolve().parents[2]))
import simulated_gpu

_current = SimpleNamespace(gpu=0)
_streams: dict[int, simulated_gpu.Stream] = {}


def _stream() -> simulated_gpu.Stream:
    gpu: int = _current.gpu
    if gpu not in _streams:
        _streams[gpu] = simulated_gpu.Stream(gpu)
    return _streams[gpu]


class ndarray:  # noqa: N801 it is CuPy's name
    """Elements of some memory, which `places` numbers."""

    def __init__(self, memory: Any, places: npt.NDArray[Any]) -> None:
        self._memory = memory  # flat
        self._places = places
        self.shape = places.shape
        self.size = places.size
        self.dtype = memory.dtype
        self.nbytes = self.size * self.dtype.itemsize

    def get(self, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        found = np.asarray(simulated_gpu.read(self._memory)[self._places])
        if out is not None:
            out[...] = found
        return found

    def set(self, values: Any) -> None:
        self[...] = values

    def __getitem__(self, key: Any) -> "ndarray":
        return ndarray(self._memory, self._places[key])

    def __setitem__(self, key: Any, values: Any) -> None:
        whole = simulated_gpu.read(self._memory)
        whole[self._places[key]] = values.get() if isinstance(values, ndarray) else values
        simulated_gpu.write(self._memory, whole)

    def reshape(self, *shape: int) -> "ndarray":
        return ndarray(self._memory, self._places.reshape(*shape))

    def __len__(self) -> int:
        return len(self._places)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._memory.stream.gpu

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = {**self._memory.__cuda_array_interface__, "shape": self.shape}
        if self.size:
            first = int(self._places.flat[0])
            assert (self._places.ravel() == np.arange(first, first + self.size)).all(), "strided"
            found["data"] = (found["data"][0] + first * self.dtype.itemsize, found["data"][1])
        return found


class _Taken:
    """Memory of the engine, used on the current stream."""

    def __init__(self, array: Any) -> None:
        found = array.__cuda_array_interface__
        simulated_gpu.read(array)  # CuPy waits for the stream of what it takes
        self._array = array
        self._found = found
        self.stream = _stream()
        self.dtype = np.dtype(found["typestr"])
        self.shape = (int(np.prod(found["shape"])),)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.stream.gpu

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._found, "shape": self.shape, "stream": self.stream.handle}


def asarray(values: Any) -> ndarray:
    if isinstance(values, ndarray):
        return values
    if hasattr(values, "__cuda_array_interface__"):
        shape = values.shape
        memory: Any = _Taken(values)
    else:
        host = np.asarray(values)
        shape, memory = host.shape, simulated_gpu.Array(host.ravel(), _stream())
    return ndarray(memory, np.arange(memory.shape[0]).reshape(shape))


from_dlpack = asarray


def asnumpy(x: Any) -> npt.NDArray[Any]:
    return asarray(x).get()


def copyto(out: ndarray, x: ndarray) -> None:
    out[...] = x


class Device:
    def __init__(self, gpu: int) -> None:
        self._gpu = gpu

    def use(self) -> "Device":
        _current.gpu = self._gpu
        return self


class Event:
    """Waits for all of the current stream."""

    def __init__(self, **_: bool) -> None:
        self._marker = simulated_gpu.Array(np.zeros(1), _stream())

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        time.sleep(float(os.environ.get("SIMULATED_FINISH", "0")))
        self._marker.get()


def alloc_pinned_memory(nbytes: int) -> bytearray:
    return bytearray(nbytes)


def _count() -> int:
    return int(os.environ.get("SIMULATED_GPUS", "4"))


runtime = SimpleNamespace(getDeviceCount=_count, runtimeGetVersion=lambda: 13000)
cuda = SimpleNamespace(
    Device=Device, Event=Event, alloc_pinned_memory=alloc_pinned_memory, runtime=runtime
)


@atexit.register
def _tell() -> None:
    if (said := simulated_gpu.trouble()) is not None:
        print(f"simulated GPU: {said}", file=sys.stderr, flush=True)
        os._exit(9)
