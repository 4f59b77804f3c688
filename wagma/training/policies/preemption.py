"""Micro-batches that end in their midst: in forward and in backward passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

__all__ = ["Preemption"]


class _OverError(BaseException):
    """The threshold has passed; no `except Exception` of a model is to stop it."""


class Preemption:
    """Ends a micro-batch when its time is over, as if it had never begun.

    The time is looked at before each module's forward pass, and when a parameter's gradient has
    been computed. A micro-batch accumulates apart from those that are finished: what it would add
    to their gradients, buffers of the model, and torch's random numbers are as before.

    Args:
        model: whose passes end.
        parameters: those of it that are trained.

    Not thread-safe.
    """

    def __init__(self, model: torch.nn.Module, parameters: Sequence[torch.Tensor]) -> None:
        self._model = model
        self._parameters = parameters
        self._end: float | None = None  # of the micro-batch that is computed
        self._handles = [
            *(m.register_forward_pre_hook(self._look) for m in model.modules()),
            *(_on_gradient(p, self._look) for p in parameters if p.requires_grad),
        ]

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def _look(self, *_: object) -> None:
        if self._end is not None and time.perf_counter() >= self._end:
            raise _OverError

    @contextmanager
    def until(self, end: float) -> Iterator[list[bool]]:
        """Compute a micro-batch until a time, of `time.perf_counter`.

        An exception of the block has the same effects, and is raised.

        Returns:
            As the block's value a list that is empty, and is not after a block that was ended.
        """
        finished = [parameter.grad for parameter in self._parameters]
        buffers = [
            (module, name, buffer, None if buffer is None else buffer.clone())
            for module in self._model.modules()
            for name, buffer in module._buffers.items()
        ]
        random = torch.get_rng_state()
        for parameter in self._parameters:
            parameter.grad = None
        ended: list[bool] = []
        self._end = end
        try:
            yield ended
        except BaseException as error:
            ended.append(True)
            for parameter, gradient in zip(self._parameters, finished, strict=True):
                parameter.grad = gradient
            with torch.no_grad():
                for module, name, buffer, before in buffers:
                    module._buffers[name] = buffer
                    if buffer is not None and before is not None:
                        buffer.copy_(before)
            torch.set_rng_state(random)
            if not isinstance(error, _OverError):
                raise
        else:
            self._add(finished)
        finally:
            self._end = None

    @torch.no_grad()
    def _add(self, finished: Sequence[torch.Tensor | None]) -> None:
        """Add the new gradients to those before, as backward passes do."""
        for parameter, gradient in zip(self._parameters, finished, strict=True):
            if gradient is not None:
                new = parameter.grad
                parameter.grad = gradient if new is None else gradient.add_(new)


def _on_gradient(parameter: torch.Tensor, hook: Callable[..., None]) -> RemovableHandle:
    register: Any = parameter.register_hook
    handle: RemovableHandle = register(hook)
    return handle
