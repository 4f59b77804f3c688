"""The base of algorithms that make a step from each averaged gradient, such as KSync."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from wagma.training.closures import needs_closure
from wagma.training.strategies.gradients import GradientAveraging

__all__ = ["GradientResults"]


class GradientResults(GradientAveraging):
    """Average the gradients that arrive in time; every rank makes one inner step per result.

    No result is lost: a rank that is behind gets all missed results in one call, and applies each
    in order as a separate step of the inner optimizer. So models are bit-identical at equal
    versions.

    Args, attributes, raises: those of `Algorithm`.
    """

    wait_avoiding = True
    _where_to_clip = (
        "gets its averages in step(), one for each version that this rank missed: clip each in "
        "a hook of the inner step, as in opt.register_step_pre_hook(lambda *_: "
        "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm))"
    )

    def check_inner(self, inner: Optimizer) -> None:
        """Check that `inner` makes one step per gradient."""
        if needs_closure(inner):
            raise TypeError(
                f"{type(self).__name__} cannot train with {type(inner).__name__}, which evaluates "
                "its closure several times per step: the gradients that come back belong to other "
                "points. Use AllreduceSGD, or an optimizer such as torch.optim.SGD"
            )

    def step(self, inner: Optimizer, closure: Callable[[], Any] | None) -> Any:
        """Evaluate `closure`, average, and step `inner` once per result."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._contribute(inner, loss)
        return loss

    @abstractmethod
    def _contribute(self, inner: Optimizer, loss: Any) -> None:
        """Average this rank's gradients, and step `inner` once per result.

        Args:
            inner: the optimizer of this rank's own steps.
            loss: what the closure returned; None without a closure.
        """

    def _apply(self, inner: Optimizer | None) -> None:
        """Make one step for each result of the latest call, oldest first.

        Args:
            inner: the optimizer of this rank's own steps; None before the first step.
        """
        assert self.outcome is not None
        results = self.outcome.results
        content = self.gradients.memory.view(torch.uint8).numpy()
        first = self.outcome.version + self.version - self.counter()
        for version, result in enumerate(results, first):
            if result is None:  # no rank had a gradient
                continue
            if len(results) > 1:  # a single result is already in the memory
                content[:] = result.view(content.dtype)
            number = self.gradients.hand_out()
            if inner is not None:
                inner.step()
            self._observe(version, number)

    @property
    def may_be_late(self) -> bool:
        """Whether results may leave this rank out, every time."""
        return True

    @property
    def unheard(self) -> bool:
        """Whether this rank was late with its stop request, and no `StopWatch` carries it."""
        if self._stop_watch is not None:
            return False
        stops, outcome = self.stops, self.outcome
        return stops.requested and not stops.agreed and outcome is not None and outcome.late

    def _observe(self, version: int, number: float) -> None:
        """Inspect a result in the memory for gradients, after the step with it.

        Args:
            version: version of the result.
            number: mean of the number beside the gradients, see `FlatGradients`.
        """
