"""Contents of a checkpoint: values that can be read back without running code from the file."""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray),
    *(torch.Size, torch.dtype, torch.device, torch.layout),
)
_SEQUENCES = (list, tuple, set)
_MAPPINGS = (dict, collections.OrderedDict, collections.Counter)
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_REMEDY = "save numbers, texts, tensors, numpy arrays, and lists, tuples, sets and dicts of these"


def safe_globals() -> list[Any]:
    """Return the functions that `torch.load` may call, for `torch.serialization.safe_globals`.

    They create arrays and scalars of numpy, under the names of numpy 1 and 2.
    """
    core = np._core if hasattr(np, "_core") else np.core
    named = [
        (getattr(core.multiarray, name), f"numpy.{module}.multiarray.{name}")
        for name in ("_reconstruct", "scalar")
        for module in ("core", "_core")
    ]
    kinds = [vars(np.dtypes)[name] for name in dir(np.dtypes) if name.endswith("DType")]
    return [*named, *kinds, np.ndarray, np.dtype, bytes]


def snapshot(state: dict[str, Any], take: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    """Copy the containers of a state, and replace each tensor by ``take(tensor)``.

    Raises:
        TypeError: a value could not be read back; the message names all such values.
    """
    faults: list[str] = []

    def copy(value: Any, path: str, inside: tuple[int, ...]) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return bytearray(value) if kind is bytearray else value
        if kind in _TENSORS:
            return take(value.detach())
        if kind is np.ndarray and not value.dtype.hasobject:
            return value.astype(value.dtype.newbyteorder("="))
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return value
        if id(value) in inside:
            faults.append(f"{path} contains itself")
        elif kind in _SEQUENCES:
            inside = (*inside, id(value))
            return kind(copy(one, f"{path}[{i}]", inside) for i, one in enumerate(value))
        elif kind in _MAPPINGS:
            inside = (*inside, id(value))
            mapping: dict[Any, Any] = kind()
            for key, one in value.items():
                mapping[copy(key, f"{path}, key {key!r}", inside)] = copy(
                    one, f"{path}[{key!r}]", inside
                )
            return mapping
        else:
            faults.append(f"{path} is a {kind.__module__}.{kind.__qualname__}")
        return None

    copied = {name: copy(value, name, ()) for name, value in state.items()}
    if faults:
        raise TypeError(
            f"{'; '.join(faults)}: reading that back would run code from the file, which is never "
            f"done: {_REMEDY}"
        )
    return copied


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy if its storage is larger, because files hold whole storages."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return tensor
    held = tensor.untyped_storage().nbytes()
    return tensor.clone() if held > tensor.numel() * tensor.itemsize else tensor
