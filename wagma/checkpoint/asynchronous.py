"""Saving while the training goes on: a copy of its state, and a thread that writes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from wagma.checkpoint.contents import snapshot

__all__ = ["Copies", "Writer"]


class Writer:
    """Run one job after the other; `wait` returns an error.

    Args:
        asynchronous: in a thread, which the end of the process waits for.

    Not thread-safe.
    """

    def __init__(self, *, asynchronous: bool) -> None:
        self._asynchronous = asynchronous
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self, job: Callable[[], None]) -> None:
        """Run a job, or start its thread; call `wait` before."""
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
        """Wait for the job that runs; return what it, or one that ran here, raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        return error


class Copies:
    """Copies of a state's tensors, in memory that later states of the same training use again.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._memory: list[torch.Tensor] = []
        self._next = 0

    def copy(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of a state, good until the next call.

        Raises:
            TypeError: see `snapshot`.
        """
        self._next = 0
        made = snapshot(state, self._copy_tensor)
        del self._memory[self._next :]
        return made

    def _copy_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        place, self._next = self._next, self._next + 1
        if place < len(self._memory) and _alike(self._memory[place], tensor):
            return self._memory[place].copy_(tensor)
        self._memory[place : place + 1] = [tensor.clone()]
        return self._memory[place]


def _alike(memory: torch.Tensor, tensor: torch.Tensor) -> bool:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return False
    return (
        memory.layout == tensor.layout
        and memory.dtype == tensor.dtype
        and memory.shape == tensor.shape
        and memory.stride() == tensor.stride()
    )
