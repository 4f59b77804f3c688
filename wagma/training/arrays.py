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


class HostCopy:
    """A tensor's content in host memory, as messages carry it; a tensor of the host is its own.

    Args:
        tensor: contiguous, on the CPU or on a GPU.

    Attributes:
        host: the content, pinned for a GPU. `fetch` writes it; whatever else writes it calls
            `settle` before and `put` afterwards.

    Not thread-safe.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._copied = None
        self.host = tensor
        if tensor.is_cuda:
            self.host = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def fetch(self) -> None:
        """Copy the tensor's content to the host, after the work queued on the current stream."""
        self._copy(self.host, self._tensor)
        self.settle()

    def put(self) -> None:
        """Queue the copy of the host's content to the tensor on the current stream."""
        self._copy(self._tensor, self.host)

    def settle(self) -> None:
        """Wait until no queued copy uses the host's content, asleep."""
        if self._copied is not None:
            self._copied.synchronize()

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        if target is source:
            return
        target.copy_(source, non_blocking=True)
        if self._copied is not None:
            self._copied.record(torch.cuda.current_stream(self._tensor.device))
