"""Marks of gradients that wait for a step, and of gradients that are averages already."""

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

Mark = tuple["weakref.ref[torch.Tensor]", int]  # a gradient, and its version counter


def mark_of(gradient: torch.Tensor | None) -> Mark | None:
    """Return a mark that identifies the gradient in its current state; None without gradient."""
    return None if gradient is None else (weakref.ref(gradient), gradient._version)


def is_same(gradient: torch.Tensor | None, mark: Mark | None) -> bool:
    """Return whether a gradient is the marked one, unwritten since."""
    if gradient is None or mark is None:
        return gradient is None and mark is None
    return mark[0]() is gradient and mark[1] == gradient._version


class GradientMarks:
    """State of the gradients of an optimizer's parameters: used, waiting or averaged.

    Gradients are identified by weak references, so that nothing is kept alive.

    Thread-safe for backward passes only.
    """

    def __init__(self) -> None:
        self._used: list[Mark | None] = []
        self._averages: list[weakref.ref[torch.Tensor] | None] | None = None
        self._scaled = False
        self._accumulated: list[torch.Tensor] = []
        self._hooks: dict[torch.Tensor, RemovableHandle] = {}

    def use(self, parameters: Sequence[torch.Tensor]) -> None:
        """Record that a step has used the gradients."""
        self.drop()
        self._used = [mark_of(parameter.grad) for parameter in parameters]

    def check_none_wait(self, parameters: Sequence[torch.Tensor]) -> None:
        """Check that there is no new gradient since the last step, except zeros.

        Raises:
            RuntimeError: there is one.
        """
        if self.waiting(parameters):
            raise RuntimeError(
                "synchronize() while gradients wait for a step: it averages the model, and "
                "ends a training; it is not Horovod's. To clip averaged gradients call "
                "opt.clip_grad_norm_(max_norm) after backward() and before opt.step(), or clip "
                "in a hook of the inner step, opt.register_step_pre_hook(). To drop the gradients "
                "call opt.zero_grad()"
            )

    def waiting(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Return whether there is a new gradient since `use` that is not zero."""
        for index, parameter in enumerate(parameters):
            gradient = parameter.grad
            used = self._used[index] if index < len(self._used) else None
            if gradient is None or is_same(gradient, used):
                continue
            if bool(gradient.detach().any()):
                return True
        return False

    def average(self, parameters: Sequence[torch.Tensor], *, scaled: bool) -> None:
        """Record that the gradients are averages now; `scaled`: the ranks compared scales."""
        for parameter in parameters:
            if parameter.requires_grad and parameter not in self._hooks:
                register: Any = parameter.register_post_accumulate_grad_hook
                self._hooks[parameter] = register(self._accumulated.append)
        self._accumulated.clear()
        self._averages = [
            None if gradient is None else weakref.ref(gradient)
            for gradient in (parameter.grad for parameter in parameters)
        ]
        self._scaled = scaled

    def averaged(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Return whether the gradients are averages, which a step may use as they are.

        They are not if backward passes have replaced them.

        Raises:
            RuntimeError: backward passes have added to averages.
        """
        if self._averages is None or not self._accumulated:
            return self._averages is not None
        later = set(self._accumulated)
        for parameter, average in zip(parameters, self._averages, strict=True):
            if parameter in later and average is not None and average() is parameter.grad:
                raise RuntimeError(
                    "backward() after average_gradients() has added this rank's gradients to the "
                    "averages: call average_gradients() after the last backward() before a step; "
                    "opt.zero_grad() drops averages that are not used"
                )
        self.drop()
        return False

    def check_step(self, closure: object, *, scaled: bool) -> None:
        """Check that a step can use the averages; `scaled`: a GradScaler calls the step.

        Raises:
            RuntimeError: the step cannot use them.
        """
        if closure is not None:
            raise RuntimeError(
                "step(closure) after average_gradients(): it averages each evaluation of the "
                "closure itself; leave average_gradients() out"
            )
        if scaled and not self._scaled:
            raise RuntimeError(
                "scaler.step() after average_gradients() without the scaler, whose scale has to be "
                "the same on all ranks: pass it, as in opt.average_gradients(scaler)"
            )

    def drop(self) -> None:
        """Forget that gradients are averages."""
        self._averages = None
        self._accumulated.clear()

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()
