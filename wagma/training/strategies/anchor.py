"""The anchor: the model at which a period of local steps begins, with its outer optimizer."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from wagma.training.closures import needs_closure

MakeOuter = Callable[[list[torch.nn.Parameter]], Optimizer]


def nesterov(lr: float, momentum: float) -> MakeOuter:
    """Return a function that creates Nesterov SGD with this rate and momentum."""
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=momentum, nesterov=True)


class Anchor:
    """A flat model, stepped with the changes of a period as its gradient.

    Args:
        make: creates the outer optimizer from a list of one parameter, the flat anchor.

    Attributes:
        optimizer: the outer optimizer, after the first `grow`.
        begun: whether the period has begun, so that the anchor is valid.
    """

    optimizer: Optimizer

    def __init__(self, make: MakeOuter) -> None:
        self._make = make
        self._parameter = torch.nn.Parameter(torch.empty(0))
        self.begun = False

    @property
    def flat(self) -> torch.Tensor:
        """The anchor as a flat tensor."""
        return self._parameter.detach()

    def describe(self) -> str:
        """Return the outer optimizer's class and arguments.

        Raises:
            TypeError: `make` creates no optimizer, or one that needs a closure.
            what `make` does.
        """
        made: object = None
        if callable(self._make):
            made = self._make([torch.nn.Parameter(torch.zeros(1))])
        if not isinstance(made, Optimizer) or needs_closure(made):
            raise TypeError(
                f"outer={self._make!r} must be a function that takes a list of one parameter and "
                "returns an optimizer that steps without a closure, as "
                "lambda parameters: torch.optim.SGD(parameters, lr=0.7, momentum=0.9)"
            )
        values = ", ".join(f"{name}={value!r}" for name, value in made.defaults.items())
        return f"{type(made).__name__}({values})"

    def grow(self, flat: torch.Tensor) -> None:
        """Append new elements of the model to the anchor and to the optimizer's state."""
        known = self.flat
        self._parameter.data = torch.cat([known.to(flat), flat[known.numel() :]])
        if known.numel() == 0:
            self.optimizer = self._make([self._parameter])
        state = self.optimizer.state[self._parameter]
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.shape == known.shape:
                state[name] = value.new_zeros(flat.shape)
                state[name][: value.numel()] = value

    def begin(self, flat: torch.Tensor) -> None:
        """Begin a period at this model, unless a period has begun."""
        if not self.begun:
            self.flat.copy_(flat)
            self.begun = True

    def step(self, changes: torch.Tensor) -> None:
        """Make an outer step with `changes` as the gradient."""
        self._parameter.grad = changes
        self.optimizer.step()
        self._parameter.grad = None

    def state(self) -> dict[str, Any]:
        """Return the anchor of a period that has begun, and the outer optimizer's state."""
        anchor = self.flat.clone() if self.begun else None
        return {"outer": self.optimizer.state_dict(), "anchor": anchor}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.optimizer.load_state_dict(state["outer"])
        self.begun = state["anchor"] is not None
        if self.begun:
            self.flat.copy_(state["anchor"])
