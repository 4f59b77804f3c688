"""The bases of algorithms that average gradients, once per step or once per result."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from wagma.collectives import PartialAllreduce
from wagma.training.arrays import copy_result
from wagma.training.closures import needs_closure
from wagma.training.flat import FlatParameters, Layout
from wagma.training.flat_gradients import FlatGradients
from wagma.training.strategies.base import Algorithm
from wagma.units import plural


class GradientAveraging(Algorithm):
    """Average gradients in one array of a collective over all ranks; models stay equal.

    A parameter without a gradient on any rank keeps ``grad = None``; if some ranks have one, the
    others count as zero.

    Args, attributes, raises: those of `Algorithm`.
    """

    _gradients: FlatGradients | None = None

    @property
    def carries_stops(self) -> bool:
        """Whether all ranks average together: every version."""
        return True

    @staticmethod
    def _like(layout: Layout) -> torch.Tensor:
        """Return a zeroed array for the gradients of parameters with this layout."""
        size = FlatGradients.size_for(layout)
        return torch.zeros(size, dtype=layout.dtype, device=layout.device)

    def _place(self, parameters: FlatParameters, memory: torch.Tensor) -> None:
        """Average the gradients of `parameters` in `memory` from now on."""
        tensors, layout = parameters.parameters, parameters.layout
        self._gradients = FlatGradients(tensors, layout, memory, stops=self.stops)

    @property
    def collective(self) -> PartialAllreduce:
        """The collective that averages; its own counter starts at 0 in every process."""
        return self._connected(PartialAllreduce)

    @property
    def gradients(self) -> FlatGradients:
        """The gradients in the collective's memory."""
        if self._gradients is None:
            raise RuntimeError(f"{type(self).__name__} serves no optimizer: it is new, or closed")
        return self._gradients

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Average the parameters, in the memory for gradients."""
        memory, flat = self.gradients.memory, self.parameters.flat
        memory.zero_()
        part = memory[: flat.numel()]
        part.copy_(flat)
        self.outcome = self.collective.sync(memory)
        flat.copy_(part)
        self.parameters.written()

    def release(self) -> None:
        """Release the collective's memory."""
        self._gradients = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({plural(self.size, 'rank')})"


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
        first = self.outcome.version + self.version - self.counter()
        for version, result in enumerate(results, first):
            if result is None:  # no rank had a gradient
                continue
            if len(results) > 1:  # a single result is already in the memory
                copy_result(self.gradients.memory, result)
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
