"""Preemption of micro-batches during forward and backward passes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from wagma.training.clock import Clock, Lead, device_of

QUEUED = 16  # checks of the time whose work a GPU may have before it


class _ThresholdPassedError(BaseException):
    """The threshold has passed; a BaseException, so that no model catches it as Exception."""


class Preemption:
    """End a micro-batch when its time is over, without a trace.

    The time is checked before each module's forward pass, and when a parameter's gradient was
    computed; on a GPU the program is there at most `QUEUED` checks ahead. Each micro-batch
    accumulates separately, so that after its end the gradients of finished ones, the model's
    buffers and torch's random state are as before.

    Args:
        model: the model whose passes to end.
        parameters: its trained parameters.
        clock: of their device.

    Not thread-safe.
    """

    def __init__(
        self, model: torch.nn.Module, parameters: Sequence[torch.Tensor], clock: Clock
    ) -> None:
        self._model = model
        self._parameters = parameters
        self._device = device_of(parameters)
        self._lead = Lead(clock, QUEUED)
        # whether the time of the current micro-batch is over; None: there is none
        self._is_over: Callable[[], bool] | None = None
        self._handles = [
            *(m.register_forward_pre_hook(self._check_time) for m in model.modules()),
            *(_on_gradient(p, self._check_time) for p in parameters if p.requires_grad),
        ]

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def _check_time(self, *_: object) -> None:
        if self._is_over is not None:
            self._lead.keep()
            if self._is_over():
                raise _ThresholdPassedError

    @contextmanager
    def until(self, is_over: Callable[[], bool]) -> Iterator[list[bool]]:
        """Compute a micro-batch in the block until `is_over` returns True.

        An exception in the block restores the same state, and is raised again.

        Returns:
            As the block's value a list that is empty unless the block was ended early.
        """
        finished = [parameter.grad for parameter in self._parameters]
        buffers = [
            (module, name, buffer, None if buffer is None else buffer.clone())
            for module in self._model.modules()
            for name, buffer in module._buffers.items()
        ]
        random = torch.get_rng_state()
        gpu = self._device if self._device is not None and self._device.type == "cuda" else None
        random_on_gpu = None if gpu is None else torch.cuda.get_rng_state(gpu)
        for parameter in self._parameters:
            parameter.grad = None
        ended: list[bool] = []
        self._is_over = is_over
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
            if gpu is not None and random_on_gpu is not None:
                torch.cuda.set_rng_state(random_on_gpu, gpu)
            if not isinstance(error, _ThresholdPassedError):
                raise
        else:
            self._add(finished)
        finally:
            self._is_over = None

    @torch.no_grad()
    def _add(self, finished: Sequence[torch.Tensor | None]) -> None:
        """Add the new gradients to the finished ones, as backward passes do."""
        for parameter, gradient in zip(self._parameters, finished, strict=True):
            if gradient is not None:
                new = parameter.grad
                parameter.grad = gradient if new is None else gradient.add_(new)


def _on_gradient(parameter: torch.Tensor, hook: Callable[..., None]) -> RemovableHandle:
    register: Any = parameter.register_hook
    handle: RemovableHandle = register(hook)
    return handle
