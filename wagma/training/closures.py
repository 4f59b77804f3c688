"""Closures of optimizers, found by the signature of their ``step``."""

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import Parameter
from typing import Any

from torch.optim import Optimizer


def needs_closure(inner: Optimizer) -> bool:
    """Return whether ``inner.step()`` is impossible without a closure, as with LBFGS or SAM.

    Any argument without a default counts, because not all optimizers name it "closure".
    """
    return any(map(_is_required, _parameters(inner).values()))


def check_given(inner: Optimizer, closure: object, weight: float) -> None:
    """Check that a required closure is given, before other ranks wait for this one.

    Raises:
        TypeError: the closure is missing.
        ValueError: a closure is required, and the step has weight 0, so that it is not evaluated.
    """
    if weight == 0 and needs_closure(inner):
        raise ValueError(
            f"weight=0 with {type(inner).__name__}, which evaluates a closure as often as it "
            "likes: every rank needs samples"
        )
    if closure is None and needs_closure(inner):
        raise TypeError(
            f"{type(inner).__name__} needs a closure that evaluates the model: call "
            "opt.step(closure), with one that clears the gradients, calls backward() and returns "
            "the loss"
        )


def step_with(inner: Optimizer, closure: Callable[[], Any]) -> Any:
    """Return ``inner.step`` with the closure, whatever the name of that argument."""
    parameters = _parameters(inner)
    required = [name for name, parameter in parameters.items() if _is_required(parameter)]
    name = next((name for name in ("closure", *required) if name in parameters), None)
    if name is None or parameters[name].kind is Parameter.POSITIONAL_ONLY:
        return inner.step(closure)
    keyword: dict[str, Any] = {name: closure}
    return inner.step(**keyword)


def _parameters(inner: Optimizer) -> Mapping[str, Parameter]:
    kind: Any = type(inner)
    return _parameters_of(kind)


@lru_cache(16)
def _parameters_of(kind: Any) -> Mapping[str, Parameter]:
    (_, *parameters) = inspect.signature(kind.step).parameters.items()
    return dict(parameters)


def _is_required(parameter: Parameter) -> bool:
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and parameter.kind not in variable
