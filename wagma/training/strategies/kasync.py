"""K-async SGD without a server: gradients that came too late join a later update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, Unpack

import torch
from torch.optim import Optimizer

from wagma.launch.logs import RankLogger
from wagma.training.marks import GradientMarks
from wagma.training.ranks import Waits
from wagma.training.strategies.ksync import KSync
from wagma.training.strategies.nonfinite import Nonfinite

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

__all__ = ["KAsync"]


@dataclass
class _Kept:
    """A gradient that no update has taken yet.

    Attributes:
        gradients: of the parameters, None where there is none.
        weight: how much it counts.
        version: of the model at which it was computed.
        loss: that the closure returned with it.
    """

    gradients: list[torch.Tensor | None]
    weight: float
    version: int
    loss: Any = None


class KAsync(KSync):
    """Averages the gradients of the first k ranks; what comes later joins a later update as it is.

    K-async SGD of Dutta et al. (AISTATS 2018) without its parameter server; k = 1 is asynchronous
    SGD. As `KSync`, but a gradient that comes too late is not dropped: `step` applies the updates
    that this rank has missed, keeps the gradient, and offers it again, as it is, in the next calls
    until an update takes it. Meanwhile `pending` is true, and the loop skips the backward pass::

        while opt.version < steps:
            if not opt.pending:
                opt.zero_grad()
                loss(model(inputs), targets).backward()
            opt.step()

    ``step(closure)`` evaluates the closure only where none is pending, and otherwise returns the
    loss of the one that is. A loop that computes all the same computes in vain: the newer gradient
    is ignored, with one warning. A gradient that is still pending when the training ends is
    dropped.

    ``opt.outcome.staleness`` is the number of versions between the model that this rank's gradient
    was computed at and the update that took it; its mean is about P / k - 1, and
    ``opt.stats()["staleness_mean"]`` has it.

    Args, raises: those of `KSync`.
    """

    def __init__(
        self,
        comm: Comm,
        k: SupportsIndex,
        *,
        window: int | None = None,
        on_nonfinite: Nonfinite = "error",
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, k, window=window, on_nonfinite=on_nonfinite, **waits)
        self._kept: _Kept | None = None
        self._marks = GradientMarks()
        self._warned = False
        self._taken = 0  # gradients of this rank that updates have taken
        self._staleness = 0  # of these together

    @property
    def pending(self) -> bool:
        """Whether a gradient of this rank waits for an update that takes it."""
        return self._kept is not None

    def should_stop(self) -> bool:
        """Return False: no gradient is computed in vain."""
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
                "backward pass where opt.pending is true"
            )
        self._offer_again(inner, kept)
        return kept.loss

    def passive_step(self, inner: Optimizer) -> None:
        """Contribute the gradient that waits, or none, and apply the results."""
        if self._kept is None:
            super().passive_step(inner)
        else:
            self._offer_again(inner, self._kept)

    def _contribute(self, inner: Optimizer, loss: Any) -> None:
        gradients = [tensor.grad for tensor in self.parameters.parameters]
        self.gradients.gather(self._number())
        if self._nonfinite.passes(self.gradients, self):
            self._offer(inner, _Kept(gradients, self.weight, self.version, loss))
        else:
            self.passive_step(inner)

    def _offer_again(self, inner: Optimizer, kept: _Kept) -> None:
        for tensor, gradient in zip(self.parameters.parameters, kept.gradients, strict=True):
            tensor.grad = gradient
        self.gradients.gather(self._number())
        self._offer(inner, kept)

    def _offer(self, inner: Optimizer, offered: _Kept) -> None:
        """Contribute what was gathered, keep it if it comes too late, and apply the results."""
        tensors, called = self.parameters.parameters, self.version
        self._average(inner, offered.weight)
        assert self.outcome is not None
        if self.outcome.late:
            self._kept = offered
            for tensor in tensors:  # what comes there is new
                tensor.grad = None
        else:
            self._kept = None
            self.outcome.staleness = called - offered.version
            self._taken += 1
            self._staleness += called - offered.version
        self._marks.use(tensors)

    def synchronize(self, *, final: bool = True) -> None:
        """Average the parameters, one version; at the end drop a gradient that waits."""
        if final:
            self._kept = None
        super().synchronize(final=final)

    def resume(self, version: int) -> None:
        """Continue the count at `version`; a gradient that waits, of a model of before, is gone."""
        super().resume(version)
        self._kept = None

    def stats(self) -> dict[str, int | float]:
        """Return the mean staleness of this rank's gradients that updates have taken, and k."""
        return {**super().stats(), "staleness_mean": self._staleness / (self._taken or 1)}

    def state(self) -> dict[str, Any]:
        """Return k and the gradient that waits."""
        kept, state = self._kept, super().state()
        if kept is None:
            return state
        loss = kept.loss.detach() if isinstance(kept.loss, torch.Tensor) else kept.loss
        copies = [None if one is None else one.clone() for one in kept.gradients]
        waiting = {"gradients": copies, "weight": kept.weight, "version": kept.version}
        return {**state, "pending": {**waiting, "loss": loss}}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up k and a gradient that waits, unless all ranks continue at an older model."""
        super().load_state(state)
        waiting = state.get("pending")
        if waiting is not None and waiting["version"] <= self.version:
            self._kept = _Kept(**waiting)
