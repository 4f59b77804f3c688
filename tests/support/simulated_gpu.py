"""Arrays on simulated GPUs, as a library like CuPy shows them, and their host's view of calls."""

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build/libwagma_device_sim.so"


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    pointer, gpu, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    for name, returns, *takes in (
        ("sim_stream", pointer, gpu),
        ("sim_alloc", pointer, gpu, size),
        ("sim_free", None, gpu, pointer),
        ("sim_write", None, gpu, pointer, pointer, pointer, size),
        ("sim_read", None, gpu, pointer, pointer, pointer, size),
        ("sim_fail_open", None, gpu),
        ("sim_trouble", ctypes.c_char_p),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = returns, takes
    return library


_lib = _load()


class Stream:
    """A stream of a GPU, for the whole test run."""

    def __init__(self, gpu: int = 0) -> None:
        self.gpu = gpu
        self.handle: int = _lib.sim_stream(gpu)


STREAM = Stream()


class Array:
    """An array in a GPU's memory.

    Args:
        values: its first elements; bfloat16 as a torch tensor.
        stream: on which it is written and read.
    """

    def __init__(self, values: Any, stream: Stream = STREAM) -> None:
        self.bfloat16 = _is_tensor(values)
        values = bits_of(values)
        self.stream = stream
        self.shape = values.shape
        self.dtype = values.dtype
        self.nbytes = values.nbytes
        self.address: int = _lib.sim_alloc(stream.gpu, values.nbytes)
        self.changed: dict[str, Any] = {}  # of the interface
        self.set(values)

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        self.get()  # nothing that uses it is queued any more
        _lib.sim_free(self.stream.gpu, self.address)

    def set(self, values: npt.ArrayLike) -> None:
        """Queue the write of these elements."""
        write(self, values)

    def get(self) -> npt.NDArray[Any]:
        """Return the elements after what is queued."""
        return read(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.stream.gpu

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": "<V2" if self.bfloat16 else self.dtype.str,
            "strides": None,
            "data": (self.address, False),
            "stream": self.stream.handle,
            **self.changed,
        }


def bits_of(values: Any) -> npt.NDArray[Any]:
    """Return numpy's array of the values; of bfloat16, which numpy has not, as uint16."""
    if _is_tensor(values):
        made: npt.NDArray[Any] = values.view(sys.modules["torch"].uint16).numpy()
        return made
    return np.asarray(values)


def _is_tensor(values: Any) -> bool:
    torch = sys.modules.get("torch")  # importing it takes seconds
    return torch is not None and isinstance(values, torch.Tensor)


def read(x: Any) -> npt.NDArray[Any]:
    """Return the elements of an array that shows the interface, in the order of its stream."""
    found = x.__cuda_array_interface__
    made = np.empty(found["shape"], found["typestr"].replace("V2", "u2"))
    gpu = x.__dlpack_device__()[1]
    _lib.sim_read(gpu, found["stream"], made.ctypes.data, found["data"][0], made.nbytes)
    return made


def write(x: Any, values: npt.ArrayLike) -> None:
    """Queue the write of all elements of such an array."""
    found = x.__cuda_array_interface__
    made = np.ascontiguousarray(values, found["typestr"].replace("V2", "u2"))
    gpu = x.__dlpack_device__()[1]
    _lib.sim_write(gpu, found["stream"], found["data"][0], made.ctypes.data, made.nbytes)


def be_out_of_reach(gpu: int = 0) -> None:
    """Let the next memory of another rank be out of the GPU's reach."""
    _lib.sim_fail_open(gpu)


def trouble() -> str | None:
    """Return what was done wrong first."""
    found: bytes | None = _lib.sim_trouble()
    return None if found is None else found.decode()


@dataclass
class Seen:
    """An outcome whose results are copied to the host."""

    outcome: Any
    results: tuple[Any, ...]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outcome, name)


class FromHost:
    """A collective of arrays on a GPU that is called with arrays of the host."""

    def __init__(self, coll: Any, x: Array) -> None:
        self._coll = coll
        self._x = x

    def _call(self, call: Any, x: npt.NDArray[Any], weight: float) -> Seen:
        self._x.set(x)
        outcome = call(self._x, weight)
        x[...] = self._x.get()
        results = [None if one is None else read(one) for one in outcome.results]
        for one in filter(lambda one: one is not None, results):
            one.flags.writeable = False
        return Seen(outcome, tuple(results))

    def allreduce(self, x: npt.NDArray[Any], weight: float = 1.0) -> Seen:
        return self._call(self._coll.allreduce, x, weight)

    def sync(self, x: npt.NDArray[Any], weight: float = 1.0) -> Seen:
        return self._call(self._coll.sync, x, weight)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coll, name)
