"""Asynchronous saving: a copy of the state, and a thread that writes it."""

import threading
from collections.abc import Callable
from typing import Any

import torch

from wagma.checkpoint.contents import snapshot


class Writer:
    """Run one job at a time; `wait` returns its error.

    Args:
        asynchronous: run jobs in a thread, for which the end of the process waits.

    Not thread-safe.
    """

    def __init__(self, *, asynchronous: bool) -> None:
        self._asynchronous = asynchronous
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self, job: Callable[[], None]) -> None:
        """Run a job or start its thread; call `wait` first."""
        if not self._asynchronous:
            self._run(job)
            return
        self._thread = threading.Thread(target=self._run, args=(job,), name="wagma-checkpoint")
        self._thread.start()

    def _run(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:
            self._error = error

    def wait(self) -> Exception | None:
        """Wait for the current job; return the exception of the last job, if any."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        return error


class Copies:
    """Copy a state's tensors into memory that later copies reuse; those on GPUs to the host.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._memory: list[torch.Tensor] = []
        self._next = 0
        self._devices: set[torch.device] = set()  # GPUs whose copies may be under way

    def copy(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of a state, valid until the next call.

        Raises:
            TypeError: see `snapshot`.
        """
        self._next = 0
        self._devices = set()
        copied = snapshot(state, self._copy_tensor)
        del self._memory[self._next :]
        for device in self._devices:
            torch.cuda.current_stream(device).synchronize()
        return copied

    def _copy_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        place, self._next = self._next, self._next + 1
        on_gpu = tensor.is_cuda and tensor.layout == torch.strided
        if on_gpu:
            self._devices.add(tensor.device)
        if place < len(self._memory) and _alike(self._memory[place], tensor):
            return self._memory[place].copy_(tensor, non_blocking=True)
        if on_gpu:
            copy = torch.empty_like(tensor, device="cpu", pin_memory=True)
            copy.copy_(tensor, non_blocking=True)
        else:
            copy = tensor.clone()
        self._memory[place : place + 1] = [copy]
        return copy


def _alike(memory: torch.Tensor, tensor: torch.Tensor) -> bool:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return False
    return (
        memory.layout == tensor.layout
        and memory.dtype == tensor.dtype
        and memory.shape == tensor.shape
        and memory.stride() == tensor.stride()
    )
