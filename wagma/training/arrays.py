"""Arrays of collectives as tensors, in host memory or on a GPU."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.dlpack import from_dlpack

from wagma.collectives import DeviceArray, PartialAllreduce


def array_of(collective: PartialAllreduce, like: torch.Tensor) -> torch.Tensor:
    """Return an uninitialised tensor for the calls of `collective`, made for arrays like `like`.

    In host memory it is the engine's own array, which is averaged without a copy.
    """
    if like.is_cuda:
        return torch.empty_like(like)
    return torch.from_numpy(collective.empty()).view(like.dtype)


def copy_result(memory: torch.Tensor, result: npt.NDArray[Any] | DeviceArray) -> None:
    """Copy one of `Outcome.results` to a tensor of its shape and dtype."""
    if isinstance(result, DeviceArray):
        memory.copy_(from_dlpack(result))
    else:  # as bytes: numpy has no bfloat16
        memory.view(torch.uint8).numpy()[:] = result.view(np.uint8)
