"""When the backward passes of this rank end, and how long DDP then waits.

DDP averages gradients inside the backward pass, so that backward passes take equally long on all
ranks. What a rank computes by itself ends with its last gradient; until the pass returns it waits
and communicates. Which gradient comes last is learned in one pass with a hook on each parameter;
from then on one parameter has a hook. DDP's own hooks, and so its sums, stay as they are.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

from wagma.profile.steps import Steps

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.hooks import RemovableHandle

_LEARN = 3  # so often at most, after steps without a last gradient


class Passes:
    """Record the backward passes through some parameters.

    Args:
        steps: where they are recorded.
        parameters: the parameters.
        ddp: the module that averages their gradients; None: no module does.

    Attributes:
        size: bytes of the gradients.
    """

    def __init__(
        self,
        steps: Steps,
        parameters: Iterable[torch.Tensor],
        ddp: DistributedDataParallel | None = None,
    ) -> None:
        import torch

        engine: Any = torch.autograd.Variable._execution_engine
        self._at_end: Callable[[Callable[[], None]], None] = engine.queue_callback
        self._steps = steps
        self._parameters = [weakref.ref(one) for one in parameters if one.requires_grad]
        self._ddp = None if ddp is None else weakref.ref(ddp)
        self.size = size_of(one for ref in self._parameters if (one := ref()) is not None)
        self._hooks: list[RemovableHandle] = []
        self._last: torch.Tensor | None = None
        self._arrived = 0.0
        self._learned = 0
        self._learn()

    def _learn(self) -> None:
        self._learned += 1
        self.close()
        for one in (ref() for ref in self._parameters):
            if one is not None:
                self._hook(one, self._see)

    def learn_again(self) -> None:
        """Learn the last gradient again: it did not come. Does so a few times at most."""
        if self._learned < _LEARN and len(self._hooks) == 1:
            self._learn()

    def _hook(self, parameter: torch.Tensor, function: Callable[[torch.Tensor], None]) -> None:
        register: Any = parameter.register_post_accumulate_grad_hook
        self._hooks.append(register(function))

    def _see(self, parameter: torch.Tensor) -> None:
        """Note a gradient of the pass in which the last one is learned."""
        began = perf_counter()
        if self._last is None:
            self._at_end(self._end_learning)
        self._last, self._arrived = parameter, began
        self._steps.hook_seconds += perf_counter() - began

    def _end_learning(self) -> None:
        """Keep the hook of the last gradient alone, and note it."""
        last, self._last = self._last, None
        assert last is not None
        self.close()
        self._hook(last, self._arrive)
        self._note(self._arrived)

    def _arrive(self, parameter: torch.Tensor) -> None:  # noqa: ARG002 (torch passes it)
        """Note the last gradient of a pass."""
        began = perf_counter()
        self._note(began)
        self._steps.hook_seconds += perf_counter() - began

    def _note(self, arrived: float) -> None:
        self._steps.add_pass(arrived)
        ddp = None if self._ddp is None else self._ddp()
        if ddp is not None and ddp.require_backward_grad_sync:
            self._arrived = arrived
            self._at_end(self._wait_for_ddp)

    def _wait_for_ddp(self) -> None:
        """Let `_end` follow DDP's callback, which was queued after the last gradient, and waits."""
        self._at_end(self._end)

    def _end(self) -> None:
        """Note the end of a pass in which DDP averaged."""
        now = perf_counter()
        self._steps.add_call(self._arrived, now, self.size)
        self._steps.hook_seconds += perf_counter() - now

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def size_of(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of tensors."""
    return sum(one.numel() * one.element_size() for one in tensors)


def data_parallel(model: torch.nn.Module | None) -> Iterator[DistributedDataParallel]:
    """Yield the DDP modules in a model; None: all of this process."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        from torch.nn.parallel import DistributedDataParallel

        kind = DistributedDataParallel
        searched: Iterable[Any] = gc.get_objects() if model is None else model.modules()
        yield from (one for one in searched if issubclass(type(one), kind))
