"""What is watched while a profile is recorded: optimizers of torch and of wagma, gradients."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from wagma.profile.steps import OPTIMIZER, WAGMA, Steps
from wagma.training import watching

if TYPE_CHECKING:
    import torch

    from wagma.collectives import Outcome
    from wagma.profile.gradients import Passes
    from wagma.training.strategies.base import Algorithm


class Watch:
    """Record the steps of the thread that makes it, until `close`.

    Torch is watched if it is imported already.

    Args:
        steps: where the steps are recorded.
        model: the model whose modules of DDP are watched; None: all.

    Attributes:
        method: the name of what averages; None: it is not known yet.
        model_bytes: bytes of the trained parameters; 0: not known yet.
    """

    def __init__(self, steps: Steps, model: torch.nn.Module | None) -> None:
        self.method: str | None = None
        self.model_bytes = 0
        self._steps = steps
        self._model = model
        self._thread = threading.get_ident()
        self._depth = 0  # of calls of wagma
        self._entered = self._inner = self._inner_began = 0.0
        self._passes: list[Passes] | None = None
        self._hooks: list[Any] = []
        watching.watcher = self
        if sys.modules.get("torch") is not None:
            from torch.optim import optimizer

            before: Callable[..., Any] = optimizer.register_optimizer_step_pre_hook
            after: Callable[..., Any] = optimizer.register_optimizer_step_post_hook
            self._hooks = [before(self._before_step), after(self._after_step)]

    def close(self) -> None:
        """Remove the hooks."""
        watching.watcher = None
        for hook in self._hooks:
            hook.remove()
        for passes in self._passes or ():
            passes.close()

    # ---- optimizers of torch ---------------------------------------------------------------------
    def _before_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if threading.get_ident() != self._thread:
            return
        began = perf_counter()
        if self._passes is None:
            groups = optimizer.param_groups
            self._begin_passes([one for group in groups for one in group["params"]])
        if self.method is None:
            self._steps.add_gap(began, self.model_bytes)
        self._inner_began = perf_counter()
        self._steps.hook_seconds += self._inner_began - began

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if threading.get_ident() != self._thread:
            return
        now = perf_counter()
        if self._depth:
            self._inner += now - self._inner_began
        else:
            self._end_step(now, OPTIMIZER, optimizer)
        self._steps.hook_seconds += perf_counter() - now

    def _begin_passes(self, parameters: list[torch.Tensor]) -> None:
        from wagma.profile.gradients import Passes, data_parallel, size_of

        if self.method is None:
            self.model_bytes = size_of(parameters)
        averaging = [] if self._depth else list(data_parallel(self._model))
        self._passes = [Passes(self._steps, ddp.parameters(), ddp) for ddp in averaging]
        if averaging:
            self.method = type(averaging[0]).__name__
        else:
            self._passes = [Passes(self._steps, parameters)]

    def _end_step(self, now: float, kind: int, who: object) -> None:
        if not self._steps.passes_now:
            for one in self._passes or ():
                one.learn_again()
        self._steps.end(now, kind, who)

    # ---- optimizers of wagma ---------------------------------------------------------------------
    def enter(self, algorithm: Algorithm) -> None:
        """Note that a call begins in which ranks may wait for each other."""
        began = perf_counter()
        if self.method is None:
            from wagma.profile.gradients import size_of

            self.method = type(algorithm).__name__
            self.model_bytes = size_of(algorithm.parameters.parameters)
        self._depth += 1
        self._inner = 0.0
        self._entered = perf_counter()
        self._steps.hook_seconds += self._entered - began

    def leave(self) -> None:
        """Note that this call ends."""
        now = perf_counter()
        self._depth -= 1
        self._steps.add_span(max(0.0, now - self._entered - self._inner))
        self._steps.hook_seconds += perf_counter() - now

    def see(self, outcome: Outcome) -> None:
        """Note the outcome of a version."""
        self._steps.add_version(outcome.waited)

    def end_step(self, algorithm: Algorithm) -> None:
        """Note that a step ends."""
        now = perf_counter()
        self._end_step(now, WAGMA, algorithm)
        self._steps.hook_seconds += perf_counter() - now
