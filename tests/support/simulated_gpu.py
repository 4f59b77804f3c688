"""Arrays on simulated GPUs, as a library like CuPy shows them."""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

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
        ("sim_finish", None, gpu, pointer),
        ("sim_event", pointer, gpu),
        ("sim_event_free", None, gpu, pointer),
        ("sim_record", None, gpu, pointer, pointer),
        ("sim_wait", None, gpu, pointer, pointer),
        ("sim_query", gpu, gpu, pointer),
        ("sim_fail", None, gpu, gpu, gpu),
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

    def finish(self) -> None:
        """Wait until all is done that is queued on it."""
        _lib.sim_finish(self.gpu, self.handle)


STREAM = Stream()


class Event:
    """An event of a GPU, which is complete at first."""

    def __init__(self, gpu: int = 0) -> None:
        self.gpu = gpu
        self.handle: int = _lib.sim_event(gpu)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            _lib.sim_event_free(self.gpu, self.handle)

    def follow(self, stream: Stream) -> None:
        """Be complete behind what is queued on the stream."""
        _lib.sim_record(self.gpu, self.handle, stream.handle)

    def hold_up(self, stream: Stream) -> None:
        """Let what is queued on the stream from now on wait for it."""
        _lib.sim_wait(self.gpu, stream.handle, self.handle)

    def query(self) -> bool:
        """Return whether it is complete."""
        return bool(_lib.sim_query(self.gpu, self.handle))


class Memory:
    """Memory of a GPU, whose owner ends what uses it before."""

    def __init__(self, nbytes: int, gpu: int = 0) -> None:
        self.nbytes = nbytes
        self.gpu = gpu
        self.address: int = _lib.sim_alloc(gpu, nbytes)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            _lib.sim_free(self.gpu, self.address)


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
        self._memory = Memory(values.nbytes, stream.gpu)
        self.address = self._memory.address
        self.changed: dict[str, Any] = {}  # of the interface
        self.set(values)

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        self.stream.finish()  # nothing that uses it is queued any more

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


def fail(call: Literal["alloc", "export", "open"], nth: int = 1, gpu: int = 0) -> None:
    """Let the nth such call of the engine from now on fail (1: the next); 0: none."""
    _lib.sim_fail(gpu, {"alloc": 0, "export": 1, "open": 2}[call], nth)


def allocations() -> int:
    """Return how much memory of GPUs this process has, in allocations."""
    found = 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing
            found += str(file.readlink()).startswith("/memfd:device")
    return found


def trouble() -> str | None:
    """Return what was done wrong first."""
    found: bytes | None = _lib.sim_trouble()
    return None if found is None else found.decode()
