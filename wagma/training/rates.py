"""Learning rates that are scaled during a step, unseen by schedulers."""

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer


class ScaledRates:
    """Multiply the learning rates of all groups while `inner` steps.

    Args:
        inner: the optimizer.
        factor: returns the factor; called before each step.
    """

    def __init__(self, inner: Optimizer, factor: Callable[[], float]) -> None:
        self._factor = factor
        self._before: list[tuple[dict[str, Any], Any]] = []
        self._hooks = (
            inner.register_step_pre_hook(self._scale),
            inner.register_step_post_hook(self.restore),
        )

    def close(self) -> None:
        """Restore the learning rates, and scale them no more."""
        self.restore()
        for hook in self._hooks:
            hook.remove()

    def _scale(self, inner: Optimizer, *_: object) -> None:
        self.restore()  # after a step that has failed
        factor = self._factor()
        self._before = [(group, group["lr"]) for group in inner.param_groups if "lr" in group]
        for group, rate in self._before:
            group["lr"] = rate * factor

    def restore(self, *_: object) -> None:
        """Restore the learning rates, also after a step that has failed."""
        for group, rate in self._before:
            group["lr"] = rate
        self._before = []
