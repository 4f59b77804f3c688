"""torch.cuda on a simulated GPU, for a PyTorch without CUDA; import it before torch.

A tensor on the GPU is one of the host in the simulated GPU's memory. An operation waits for what is
queued on the current stream, and is done at once: what the engine still has to write is not seen
before a stream waits for it. Tensors of host and GPU are not mixed, as on a true one.
"""

import atexit
import ctypes
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
_torch = find_spec("torch")
assert _torch is not None
assert _torch.origin is not None
for _library in (  # before torch asks whether there is CUDA
    Path(_torch.origin).with_name("lib") / "libc10.so",
    Path(_torch.origin).with_name("lib") / "libtorch_cpu.so",
    ROOT / "build/libwagma_torch_cuda.so",
):
    ctypes.CDLL(str(_library))

sys.path.append(str(ROOT / "tests/support"))
import simulated_gpu  # noqa: E402
import torch  # noqa: E402
import torch.utils.dlpack  # noqa: E402
from torch.utils import _pytree as trees  # noqa: E402

logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)  # it misses Triton
GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
KEPT = 200  # allocations that are not used any more
CYCLES = 2e9  # of torch.cuda._sleep(), in a second


# ---- streams and events --------------------------------------------------------------------------


_streams: list["Stream"] = []


class Stream(simulated_gpu.Stream):
    """A stream of the simulated GPU, as `torch.cuda.Stream`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.cuda_stream = self.handle
        self.synchronize = self.finish
        self.device = GPU
        _streams.append(self)

    def wait_stream(self, other: "Stream") -> None:
        event = simulated_gpu.Event()
        event.follow(other)
        event.hold_up(self)


class Event:
    """An event, as `torch.cuda.Event`; its time is when it was first seen to be complete."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._event = simulated_gpu.Event()
        self._at: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        self._event.follow(stream or current_stream())
        self._at = None

    def query(self) -> bool:
        if self._at is None and self._event.query():
            self._at = time.perf_counter()
        return self._at is not None

    def synchronize(self) -> None:
        while not self.query():
            time.sleep(0)

    def elapsed_time(self, end_event: "Event") -> float:
        self.synchronize()
        end_event.synchronize()
        assert self._at is not None
        assert end_event._at is not None
        return 1e3 * (end_event._at - self._at)


_default = Stream()
_of_thread = threading.local()
_debug = SimpleNamespace(mode="default")


def current_stream(_: Any = None) -> Stream:
    found: Stream = getattr(_of_thread, "stream", _default)
    return found


@contextmanager
def use_stream(stream: Stream | None) -> Iterator[None]:
    before = current_stream()
    _of_thread.stream = stream or before
    try:
        yield
    finally:
        _of_thread.stream = before


def synchronize(_: Any = None) -> None:
    for one in _streams:
        one.finish()


# ---- tensors -------------------------------------------------------------------------------------


_unused: list[simulated_gpu.Memory] = []


class Memory:
    """Memory of tensors, which is freed some time after the last of them, behind what is queued."""

    def __init__(self, nbytes: int) -> None:
        self.memory = simulated_gpu.Memory(nbytes)

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        _unused.append(self.memory)
        if len(_unused) > KEPT:
            synchronize()
            _unused.clear()


def over(address: int, nbytes: int, owner: Any) -> torch.Tensor:
    """Return the bytes at an address as a tensor of the host, which keeps the owner."""
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    buffer = type("Owned", (ctypes.c_char * nbytes,), {}).from_address(address)
    buffer.owner = owner
    return torch.frombuffer(buffer, dtype=torch.uint8)


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the host with a copy of all its storage, in the GPU's memory."""
    storage = tensor.untyped_storage()
    memory = Memory(storage.nbytes())
    copy = over(memory.memory.address, storage.nbytes(), memory)
    copy.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
    return torch.empty(0, dtype=tensor.dtype).set_(
        copy.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )


class CudaTensor(torch.Tensor):
    """A tensor on the GPU; `inner` is its memory, as a tensor of the host."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "CudaTensor":
        made: CudaTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=GPU,
        )
        made.inner = inner
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, _meta: Any, _size: Any, _stride: Any) -> "CudaTensor":
        return CudaTensor(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return operate(func, args, kwargs or {})

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def record_stream(self, stream: Stream) -> None:
        """Memory is freed when all is done that is queued on the current stream."""

    def __format__(self, form: str) -> str:
        return format(self.item() if self.dim() == 0 else self.cpu(), form)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return restored, (self.detach().cpu(), self.requires_grad)


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """As ``tensor.data = value``, which copies nothing that Python has added to the value."""
    if isinstance(value, CudaTensor) != isinstance(tensor, CudaTensor):
        torch.utils.swap_tensors(tensor, torch.nn.Parameter(value, tensor.requires_grad))
        return
    _data.__set__(tensor, value)
    if isinstance(value, CudaTensor):
        tensor.inner = value.inner


_data: Any = torch.Tensor.data
torch.Tensor.data = property(_data.__get__, _set_data)


def restored(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """Return a tensor of the GPU that was saved, where `load` has to bring it."""
    place = getattr(_of_thread, "map_location", None) or GPU
    return tensor.to(place).requires_grad_(requires_grad)


def load(file: Any, map_location: Any = None, **options: Any) -> Any:
    """As `torch.load`; `map_location`: None or a device."""
    _of_thread.map_location = map_location
    try:
        with torch.serialization.safe_globals([restored]):
            found = _load(file, map_location=CPU, **options)
    finally:
        _of_thread.map_location = None
    if map_location is None:
        return found
    return trees.tree_map_only(torch.Tensor, lambda one: one.to(map_location), found)


_load, torch.load = torch.load, load


MOVES = {"aten::copy_", "aten::_to_copy", "aten::index", "aten::index_put_", "aten::set_"}


def operate(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Do an operation on tensors of the GPU, or one that makes some."""
    current_stream().finish()
    name = func._schema.name
    given, tree = trees.tree_flatten((args, kwargs))
    tensors = [one for one in given if isinstance(one, torch.Tensor)]
    if any(not isinstance(one, CudaTensor) and one.dim() for one in tensors) and name not in MOVES:
        raise RuntimeError(f"{name}: expected all tensors to be on the same device")
    target = kwargs.get("device") or GPU
    to_host = name == "aten::copy_" and not isinstance(args[0], CudaTensor)
    to_host |= target.type == "cpu" and not kwargs.get("non_blocking")
    if (to_host or name == "aten::_local_scalar_dense") and _debug.mode == "warn":
        warnings.warn("called a synchronizing CUDA operation", stacklevel=2)
    inner_args, inner_kwargs = trees.tree_unflatten([_inner(one) for one in given], tree)
    done = func(*inner_args, **inner_kwargs)
    inner = [one.inner for one in tensors if isinstance(one, CudaTensor)]
    is_traced = any(type(one) is not torch.Tensor for one in inner)  # by torch.compile
    storages = set() if is_traced else {_storage(one) for one in inner}

    def outer(one: Any) -> Any:
        if not isinstance(one, torch.Tensor) or target.type != "cuda":
            return one
        return CudaTensor(one if is_traced or _storage(one) in storages else moved(one))

    written = _written(func)
    if written is None:
        return trees.tree_map(outer, done)
    return next((args[k] if k < len(args) else kwargs[name] for k, name in written), None)


def _inner(one: Any) -> Any:
    if isinstance(one, torch.device) and one.type == "cuda":
        return CPU
    return one.inner if isinstance(one, CudaTensor) else one


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@cache
def _written(func: Any) -> list[tuple[int, str]] | None:
    """Return the argument that is written and returned, or none; None: others are returned."""
    schema = func._schema
    returned = [one.alias_info for one in schema.returns]
    if not schema.is_mutable or any(one is None or not one.is_write for one in returned):
        return None
    return [
        (k, one.name)
        for k, one in enumerate(schema.arguments)
        if returned and one.alias_info is not None and one.alias_info.is_write
    ]


# ---- what makes tensors on the GPU ---------------------------------------------------------------


def empty(size: Any, **options: Any) -> torch.Tensor:
    return CudaTensor(moved(torch.empty(size, **_on_host(options))))


def empty_strided(size: Any, stride: Any, **options: Any) -> torch.Tensor:
    return CudaTensor(moved(torch.empty_strided(size, stride, **_on_host(options))))


def _on_host(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "device": CPU, "pin_memory": False}


def from_dlpack(array: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    if isinstance(array, CudaTensor):
        return CudaTensor(_from_dlpack(array.inner))
    if not hasattr(array, "__dlpack_device__") or array.__dlpack_device__()[0] != 2:
        return _from_dlpack(array, *args, **kwargs)
    array.__dlpack__(stream=current_stream().handle, max_version=(1, 0))
    data = over(array.__cuda_array_interface__["data"][0], array.nbytes, array)
    return CudaTensor(data.view(getattr(torch, array.dtype)).view(array.shape))


def tensor(data: Any, *, device: Any = None, requires_grad: bool = False, **options: Any) -> Any:
    """As `torch.tensor`, which fills what it makes in C++, past what is simulated."""
    made = _tensor(data, **options)
    if device is not None:
        made = made.to(device)
    return made.requires_grad_(requires_grad)


_tensor = torch.tensor
torch.tensor = tensor
_from_dlpack = torch.from_dlpack
torch.from_dlpack = torch.utils.dlpack.from_dlpack = from_dlpack
_kernels = torch.library.Library("aten", "IMPL")
_kernels.impl("empty.memory_format", empty, "CUDA")
_kernels.impl("empty_strided", empty_strided, "CUDA")


# ---- torch.cuda ----------------------------------------------------------------------------------


def _set_debug(mode: str) -> None:
    _debug.mode = mode


torch.version.cuda = "13.0"
for _name, _value in {
    "Event": Event,
    "Stream": Stream,
    "_lazy_init": lambda: None,
    "_sleep": lambda cycles: time.sleep(cycles / CYCLES),
    "current_device": lambda: 0,
    "current_stream": current_stream,
    "device_count": lambda: 1,
    "get_rng_state": lambda _=0: torch.get_rng_state(),
    "get_rng_state_all": lambda: [torch.get_rng_state()],
    "is_available": lambda: True,
    "is_bf16_supported": lambda: True,
    "is_current_stream_capturing": lambda: False,
    "manual_seed_all": lambda _: None,
    "set_device": lambda _: None,
    "set_rng_state": lambda state, _=0: torch.set_rng_state(state),
    "set_sync_debug_mode": _set_debug,
    "stream": use_stream,
    "synchronize": synchronize,
}.items():
    setattr(torch.cuda, _name, _value)


@atexit.register
def _tell() -> None:
    if (said := simulated_gpu.trouble()) is not None:
        print(f"simulated GPU: {said}", file=sys.stderr, flush=True)
        os._exit(9)
