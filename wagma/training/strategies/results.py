"""Averaged gradients that each make a step: what algorithms that wait for some ranks have alike."""

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
    """Averages gradients of the ranks that are there, and steps once per result on every rank.

    No result is lost, so that the models are equal at equal versions, bit for bit: a rank that is
    behind gets all results in one step and applies each as a step of the inner optimizer of its
    own, in order.

    Args, attributes, raises: those of `Algorithm`.
    """

    wait_avoiding = True
    _where_to_clip = (
        "gets its averages in step(), one for each version that this rank has missed: clip each in "
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
            loss: that the closure returned; None without one.
        """

    def _apply(self, inner: Optimizer | None) -> None:
        """Make a step of each result of the latest call, oldest first.

        Args:
            inner: the optimizer of this rank's own steps; None: there was no step yet.
        """
        assert self.outcome is not None
        results = self.outcome.results
        content = self.gradients.memory.view(torch.uint8).numpy()
        first = self.outcome.version + self.version - self.counter()
        for version, result in enumerate(results, first):
            if result is None:  # nobody had a gradient
                continue
            if len(results) > 1:  # otherwise it lies there
                content[:] = result.view(content.dtype)
            number = self.gradients.hand_out()
            if inner is not None:
                inner.step()
            self._see(version, number)

    @property
    def may_be_late(self) -> bool:
        """Whether results may do without this rank, every time."""
        return True

    @property
    def unheard(self) -> bool:
        """Whether this rank came too late with its wish to stop, and nothing else tells it."""
        if self._stop_watch is not None:
            return False
        stops, outcome = self.stops, self.outcome
        return stops.told and not stops.agreed and outcome is not None and outcome.late

    def _see(self, version: int, number: float) -> None:
        """Look at a result, which lies in the memory for gradients, after the step with it.

        Args:
            version: of the result.
            number: the mean of what the ranks gave beside their gradients, see `FlatGradients`.
        """
