"""Which optimizers evaluate a closure as they like."""

from __future__ import annotations

import inspect

from torch.optim import Optimizer

__all__ = ["needs_closure"]


def needs_closure(inner: Optimizer) -> bool:
    """Whether a step of `inner` is impossible without a closure, as with LBFGS."""
    closure = inspect.signature(type(inner).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
