"""K-async SGD without a server: a late gradient joins a later update."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.optim import Optimizer

from wagma.launch.logs import RankLogger
from wagma.training.marks import GradientMarks
from wagma.training.strategies.ksync import KSync


@dataclass
class _PendingGradient:
    """A gradient that no update has taken yet."""

    gradients: list[torch.Tensor | None]  # gradient of each parameter, or None
    weight: float  # its weight
    version: int  # version of the model at which it was computed
    loss: Any = None  # the loss that the closure returned with it


class KAsync(KSync):
    """Average the gradients of the first k ranks; a late gradient joins a later update unchanged.

    K-async SGD of Dutta et al. (AISTATS 2018) without its parameter server; k = 1 is asynchronous
    SGD. Unlike `KSync` it does not drop a late gradient: `step` applies the updates that this rank
    missed, keeps the gradient, and contributes it unchanged in the next calls until an update takes
    it. Meanwhile `pending` is true, and the loop skips the backward pass::

        while opt.version < steps:
            if not opt.pending:
                opt.zero_grad()
                loss(model(inputs), targets).backward()
            opt.step()

    ``step(closure)`` evaluates the closure only if no gradient is pending; otherwise it returns the
    loss of the pending gradient. A gradient that the loop computes meanwhile is ignored, with one
    warning. A gradient still pending at the end of the training is dropped.

    ``opt.outcome.staleness`` is the number of versions between the model at which this rank's
    gradient was computed and the update that took it. Its mean, about P / k - 1, is
    ``opt.stats()["staleness_mean"]``.

    Args, raises: those of `KSync`.
    """

    _kept: _PendingGradient | None = None
    _warned = False
    _taken = 0  # gradients of this rank that updates have taken
    _staleness = 0  # the sum of their staleness

    @cached_property
    def _marks(self) -> GradientMarks:
        return GradientMarks()

    @property
    def pending(self) -> bool:
        """Whether a gradient of this rank waits for an update to take it."""
        return self._kept is not None

    def should_stop(self) -> bool:
        """Return False: every gradient will be used."""
        return False

    def step(self, inner: Optimizer, closure: Callable[[], Any] | None) -> Any:
        """Evaluate `closure` unless a gradient waits, average, and step `inner` once per result."""
        kept = self._kept
        if kept is None:
            return super().step(inner, closure)
        if not self._warned and self._marks.waiting(self.parameters.parameters):
            self._warned = True
            RankLogger(__name__, self.rank, self.size).warning(
                "a gradient was computed while an older one was pending, and is ignored: skip the "
                "backward pass while opt.pending is true"
            )
        self._offer_again(inner, kept)
        return kept.loss

    def passive_step(self, inner: Optimizer) -> None:
        """Contribute the pending gradient, or none, and apply the results."""
        if self._kept is None:
            super().passive_step(inner)
        else:
            self._offer_again(inner, self._kept)

    def _contribute(self, inner: Optimizer, loss: Any) -> None:
        gradients = [tensor.grad for tensor in self.parameters.parameters]
        self.gradients.gather(self._number())
        if self._nonfinite.passes(self.gradients, self):
            self._offer(inner, _PendingGradient(gradients, self.weight, self.version, loss))
        else:
            self.passive_step(inner)

    def _offer_again(self, inner: Optimizer, kept: _PendingGradient) -> None:
        for tensor, gradient in zip(self.parameters.parameters, kept.gradients, strict=True):
            tensor.grad = gradient
        self.gradients.gather(self._number())
        self._offer(inner, kept)

    def _offer(self, inner: Optimizer, offered: _PendingGradient) -> None:
        """Contribute the gathered gradient, keep it if it is late, and apply the results."""
        tensors, called = self.parameters.parameters, self.version
        self._average(inner, offered.weight)
        assert self.outcome is not None
        if self.outcome.late:
            self._kept = offered
            for tensor in tensors:  # a later gradient is then a new one
                tensor.grad = None
        else:
            self._kept = None
            self.outcome.staleness = called - offered.version
            self._taken += 1
            self._staleness += called - offered.version
        self._marks.use(tensors)

    def synchronize(self, *, final: bool = True) -> None:
        """Average the parameters, one version; at the end drop a pending gradient."""
        if final:
            self._kept = None
        super().synchronize(final=final)

    def resume(self, version: int) -> None:
        """Continue counting at `version`; drop a pending gradient of an earlier model."""
        super().resume(version)
        self._kept = None

    def stats(self) -> dict[str, int | float]:
        """Return k, and the mean staleness of this rank's gradients that updates have taken."""
        return {**super().stats(), "staleness_mean": self._staleness / (self._taken or 1)}

    def state(self) -> dict[str, Any]:
        """Return k and the pending gradient."""
        kept, state = self._kept, super().state()
        if kept is None:
            return state
        loss = kept.loss.detach() if isinstance(kept.loss, torch.Tensor) else kept.loss
        copies = [None if one is None else one.clone() for one in kept.gradients]
        waiting = {"gradients": copies, "weight": kept.weight, "version": kept.version}
        return {**state, "pending": {**waiting, "loss": loss}}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore k, and a pending gradient unless all ranks continue at an older model."""
        super().load_state(state)
        waiting = state.get("pending")
        if waiting is not None and waiting["version"] <= self.version:
            pairs = zip(waiting["gradients"], self.parameters.parameters, strict=True)
            moved = [None if one is None else one.to(tensor.device) for one, tensor in pairs]
            self._kept = _PendingGradient(**{**waiting, "gradients": moved})
