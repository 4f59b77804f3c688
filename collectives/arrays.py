"""Arrays of the user: where they are, what they hold, and whether the engine can work on them.

numpy arrays, torch tensors, any C-contiguous buffer (`array.array`, `memoryview`) and arrays with
DLPack are accepted, of dtype float32, float64, float16, bfloat16, int32 or int64. numpy has no
bfloat16: its bits travel as uint16, but only where the handle was made with a bfloat16 array.

Arrays may be in the memory of an NVIDIA GPU: torch's, and those with `__cuda_array_interface__` or
DLPack (CuPy). Their stream is the one on which the caller produces them and uses the result. Pinned
memory counts as the host's, managed memory as its GPU's.

The engine's calls recognise the usual cases themselves. This module handles the unusual ones and
says what is wrong with an array. Everything here is pure and thread-safe.
"""

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type of the engine."""

    name: str  # as numpy and torch call it
    code: int  # wagma_dtype in wagma_options.h
    storage: np.dtype[Any]  # numpy dtype that holds the same bits
    formats: str  # characters that the buffer protocol uses for it


DTYPES = {
    dtype.name: dtype
    for dtype in (
        Dtype("float32", 0, np.dtype(np.float32), "f"),
        Dtype("float64", 1, np.dtype(np.float64), "d"),
        Dtype("float16", 2, np.dtype(np.float16), "e"),
        Dtype("bfloat16", 3, np.dtype(np.uint16), "H"),
        Dtype("int32", 4, np.dtype(np.int32), "i"),
        Dtype("int64", 5, np.dtype(np.int64), "lq"),
    )
}


LEGACY_STREAM = 1  # CUDA's handle of the legacy default stream; 2: the default one of the thread


class Array(NamedTuple):
    """A resolved array; the address is valid while `owner` lives."""

    address: int
    dtype: Dtype
    shape: tuple[int, ...]
    owner: object
    gpu: int | None = None  # number of the GPU, as CUDA counts; None: in the host's memory
    stream: int = LEGACY_STREAM  # handle of the caller's CUDA stream, where `gpu` is given


def dtype_of_code(code: int) -> Dtype:
    """Return the element type with this wagma_dtype code; raise LookupError if there is none."""
    return next(dtype for dtype in DTYPES.values() if dtype.code == code)


def torch_tensor() -> Any:
    """Return torch.Tensor, or None while torch has not been imported."""
    torch = sys.modules.get("torch")
    return getattr(torch, "Tensor", None)  # None: another thread is still importing torch


def torch_dtype(dtype: Dtype) -> Any:
    """Return torch's dtype for an element type; torch must have been imported."""
    return getattr(sys.modules["torch"], dtype.name)


def resolve(x: Any, *, expected: Dtype | None = None, writable: bool = True) -> Array:
    """Find the memory of `x`.

    Args:
        x: array as described above.
        expected: element type of the handle, if there is one: bfloat16 admits uint16.
        writable: whether a read-only array is an error.

    Raises:
        TypeError: not an array, an unsupported dtype or byte order, or in the memory of another
            device.
        ValueError: not C-contiguous, read-only, or a tensor whose memory was freed.
    """
    tensor = torch_tensor()
    if tensor is not None and isinstance(x, tensor):
        return _resolve_torch(x)
    if isinstance(x, np.ndarray):
        return _resolve_numpy(x, x, expected, writable)
    if hasattr(x, "__cuda_array_interface__"):
        return _resolve_cuda(x, expected, writable)
    try:
        view = memoryview(x)
    except TypeError:
        if hasattr(x, "__dlpack__"):
            return _resolve_dlpack(x, writable)
    else:
        if not view.c_contiguous:
            raise _not_contiguous(x)
        return _resolve_numpy(np.asarray(view), x, expected, writable)
    raise TypeError(
        f"expected a numpy array, a torch tensor, a C-contiguous buffer, or an array with "
        f"__cuda_array_interface__ or __dlpack__, got {_type_name(x)}"
    )


def match(array: Array, dtype: Dtype, shape: tuple[int, ...], gpu: int | None) -> None:
    """Check that an array has the memory, the dtype and the shape of the handle.

    Raises:
        TypeError: other memory, or another dtype.
        ValueError: another shape.
    """
    if array.gpu != gpu:
        remedy = "copy it to the host" if gpu is None else f"copy it to GPU {gpu}"
        raise TypeError(
            f"the handle was made for arrays {place(gpu)}, the array is {place(array.gpu)}: "
            f"{remedy}, or make a collective for such arrays"
        )
    if array.dtype is not dtype:
        raise TypeError(f"the handle was made for {dtype.name}, the array is {array.dtype.name}")
    if array.shape != shape:
        raise ValueError(f"the handle was made for shape {shape}, the array has {array.shape}")


def place(gpu: int | None) -> str:
    """Return words for the memory of GPU `gpu`, or of the host."""
    return "in host memory" if gpu is None else f"on GPU {gpu}"


def _resolve_numpy(
    array: npt.NDArray[Any], x: Any, expected: Dtype | None, writable: bool
) -> Array:
    if not array.flags.c_contiguous:
        raise _not_contiguous(x)
    if writable and not array.flags.writeable:
        raise _read_only(x)
    if not array.dtype.isnative:
        raise TypeError(f"{_type_name(x)} of foreign byte order ({array.dtype.str})")
    dtype = _dtype_named(array.dtype.name, expected)
    return Array(array.ctypes.data, dtype, array.shape, array)


def _resolve_torch(x: Any) -> Array:
    if x.layout is not sys.modules["torch"].strided:
        raise TypeError(f"torch tensor of layout {x.layout}; only torch.strided is supported")
    if x.device.type == "meta":
        raise TypeError(
            "torch.Tensor is on meta, without values: pass one that has memory, such as "
            "torch.empty_like(tensor, device='cpu')"
        )
    gpu, stream = None, LEGACY_STREAM
    if x.device.type == "cuda" and sys.modules["torch"].version.cuda is not None:
        gpu = x.device.index
        stream = sys.modules["torch"].cuda.current_stream(gpu).cuda_stream or LEGACY_STREAM
    elif x.device.type != "cpu":
        raise _elsewhere(x, str(x.device))
    if not x.is_contiguous():
        raise _not_contiguous(x)
    if x.is_neg() or x.is_conj():
        raise ValueError("torch tensor with a pending negation or conjugation; resolve it first")
    dtype = _dtype_named(str(x.dtype).removeprefix("torch."), None)
    address = x.data_ptr()
    if address == 0 and x.numel() > 0:
        raise ValueError(
            "the torch tensor has no memory: it was freed (untyped_storage().resize_(0)); pass it "
            "when it has some again"
        )
    return Array(address, dtype, tuple(x.shape), x, gpu, stream)


def _dtype_named(name: str, expected: Dtype | None) -> Dtype:
    if expected is not None and name == expected.storage.name:
        return expected
    if name not in DTYPES:
        raise TypeError(f"dtype {name} is not supported; supported are {', '.join(DTYPES)}")
    return DTYPES[name]


# ---- CUDA array interface: https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html ---


def _resolve_cuda(x: Any, expected: Dtype | None, writable: bool) -> Array:
    """Find an array's memory, and the stream with which its library says to synchronise."""
    if not hasattr(x, "__dlpack_device__"):
        raise TypeError(
            f"{_type_name(x)} has no __dlpack_device__, which tells its GPU: pass "
            "cupy.asarray(array) or torch.as_tensor(array, device='cuda')"
        )
    gpu = _gpu(x)
    found = x.__cuda_array_interface__
    shape = tuple(found["shape"])
    kind = np.dtype(found["typestr"])
    if not kind.isnative:
        raise TypeError(f"{_type_name(x)} of foreign byte order ({kind.str})")
    # What ml_dtypes and CuPy call bfloat16 has the type of two bytes there.
    name = "bfloat16" if kind.str[1:] == "V2" else kind.name
    dtype = _dtype_named(name, expected)
    if found.get("strides") is not None:
        steps = [stride // kind.itemsize for stride in found["strides"]]
        _check_contiguous(x, shape, steps)
    address, read_only = found["data"]
    if writable and read_only:
        raise _read_only(x)
    if gpu is None:  # pinned
        return Array(address, dtype, shape, x)
    return Array(address, dtype, shape, x, gpu, found.get("stream") or LEGACY_STREAM)


def _check_contiguous(x: Any, shape: Sequence[int], strides: Sequence[int]) -> None:
    """Check strides, which count elements."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != expected and 0 not in shape:
            raise _not_contiguous(x)
        expected *= extent


def _gpu(x: Any) -> int | None:
    """Return the number of the GPU in whose memory DLPack says that x is; None: the host's."""
    kind, number = x.__dlpack_device__()
    if kind in _DL_CPU_DEVICES:
        return None
    if kind not in _DL_CUDA_DEVICES:
        raise _elsewhere(x, f"DLPack device {(int(kind), number)}")
    return int(number)


# ---- DLPack: https://dmlc.github.io/dlpack/latest/c_api.html -----------------------------------


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype_code", ctypes.c_uint8),
        ("dtype_bits", ctypes.c_uint8),
        ("dtype_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", _DLTensor),
    )


_DL_CPU_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost (pinned)
_DL_CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DL_READ_ONLY, _DL_IS_COPIED = 1, 2
_DL_DTYPES = {  # (code, bits)
    (2, 32): "float32",
    (2, 64): "float64",
    (2, 16): "float16",
    (4, 16): "bfloat16",
    (0, 32): "int32",
    (0, 64): "int64",
}
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def dlpack_dtype(dtype: Dtype) -> tuple[int, int]:
    """DLPack's code and bits of an element type."""
    return next(key for key, name in _DL_DTYPES.items() if name == dtype.name)


def _resolve_dlpack(x: Any, writable: bool) -> Array:
    """Find an array's memory by DLPack.

    The capsule stays the owner, unconsumed: its destructor calls the producer's deleter.
    """
    gpu = _gpu(x)
    # The producer makes the stream wait for what it has queued.
    stream = {} if gpu is None else {"stream": LEGACY_STREAM}
    try:
        capsule = x.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:  # a producer from before DLPack 1.0, which cannot report "read-only"
        capsule = x.__dlpack__(**stream)
    if '"dltensor_versioned"' in repr(capsule):
        pointer = _capsule_pointer(capsule, b"dltensor_versioned")
        managed = _DLManagedTensorVersioned.from_address(pointer)
        if writable and managed.flags & (_DL_READ_ONLY | _DL_IS_COPIED):
            raise _read_only(x)
        tensor = managed.dl_tensor
    else:
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        _check_contiguous(x, shape, tensor.strides[: tensor.ndim])
    key = (tensor.dtype_code, tensor.dtype_bits)
    if key not in _DL_DTYPES or tensor.dtype_lanes != 1:
        raise TypeError(
            f"DLPack dtype (code, bits) {key} is not supported; supported are {', '.join(DTYPES)}"
        )
    address = (tensor.data or 0) + tensor.byte_offset
    return Array(address, DTYPES[_DL_DTYPES[key]], shape, capsule, gpu)


# ---- errors ------------------------------------------------------------------------------------


def _type_name(x: object) -> str:
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def _not_contiguous(x: object) -> ValueError:
    return ValueError(f"{_type_name(x)} is not C-contiguous; pass a contiguous array")


def _read_only(x: object) -> ValueError:
    return ValueError(
        f"{_type_name(x)} is read-only, but the result is written into it (an array that was "
        "passed to iallreduce() is read-only until its request is complete)"
    )


def _elsewhere(x: object, where: str) -> TypeError:
    return TypeError(
        f"{_type_name(x)} is on {where}; arrays may be in the memory of the host or of an NVIDIA "
        "GPU: copy it to the host first"
    )
