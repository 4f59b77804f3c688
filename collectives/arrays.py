"""Arrays of the user: where they are, what they hold, and whether the engine can work on them.

numpy arrays, torch CPU tensors, any C-contiguous buffer (`array.array`, `memoryview`) and CPU
arrays with DLPack are accepted, of dtype float32, float64, float16, bfloat16, int32 or int64. numpy
has no bfloat16: its bits travel as uint16, but only where the handle was made with a bfloat16
array.

The engine's calls recognise the usual cases themselves. This module handles the unusual ones and
says what is wrong with an array. Everything here is pure and thread-safe.
"""

import ctypes
import sys
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


class Array(NamedTuple):
    """A resolved array; the address is valid while `owner` lives."""

    address: int
    dtype: Dtype
    shape: tuple[int, ...]
    owner: object


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
        TypeError: not an array, an unsupported dtype or byte order, or not in CPU memory.
        ValueError: not C-contiguous, read-only, or a tensor whose memory was freed.
    """
    tensor = torch_tensor()
    if tensor is not None and isinstance(x, tensor):
        return _resolve_torch(x)
    if isinstance(x, np.ndarray):
        return _resolve_numpy(x, x, expected, writable)
    if hasattr(x, "__cuda_array_interface__"):
        raise _not_on_cpu(x, "CUDA")
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
        f"expected a numpy array, a torch CPU tensor, a C-contiguous buffer or a CPU array with "
        f"__dlpack__, got {_type_name(x)}"
    )


def match(array: Array, dtype: Dtype, shape: tuple[int, ...]) -> None:
    """Check that an array has the dtype and the shape of the handle.

    Raises:
        TypeError: another dtype.
        ValueError: another shape.
    """
    if array.dtype is not dtype:
        raise TypeError(f"the handle was made for {dtype.name}, the array is {array.dtype.name}")
    if array.shape != shape:
        raise ValueError(f"the handle was made for shape {shape}, the array has {array.shape}")


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
    if x.device.type != "cpu":
        raise _not_on_cpu(x, str(x.device))
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
    return Array(address, dtype, tuple(x.shape), x)


def _dtype_named(name: str, expected: Dtype | None) -> Dtype:
    if expected is not None and name == expected.storage.name:
        return expected
    if name not in DTYPES:
        raise TypeError(f"dtype {name} is not supported; supported are {', '.join(DTYPES)}")
    return DTYPES[name]


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
    if x.__dlpack_device__()[0] not in _DL_CPU_DEVICES:
        raise _not_on_cpu(x, f"DLPack device {x.__dlpack_device__()}")
    try:
        capsule = x.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer from before DLPack 1.0, which cannot report "read-only"
        capsule = x.__dlpack__()
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
        expected = 1
        for i in reversed(range(tensor.ndim)):
            if shape[i] > 1 and tensor.strides[i] != expected and 0 not in shape:
                raise _not_contiguous(x)
            expected *= shape[i]
    key = (tensor.dtype_code, tensor.dtype_bits)
    if key not in _DL_DTYPES or tensor.dtype_lanes != 1:
        raise TypeError(
            f"DLPack dtype (code, bits) {key} is not supported; supported are {', '.join(DTYPES)}"
        )
    address = (tensor.data or 0) + tensor.byte_offset
    return Array(address, DTYPES[_DL_DTYPES[key]], shape, capsule)


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


def _not_on_cpu(x: object, where: str) -> TypeError:
    return TypeError(
        f"{_type_name(x)} is in {where} memory; this build works on CPU memory only: copy it to "
        f"the CPU first"
    )
