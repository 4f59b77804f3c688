"""An optimizer around another one."""

from collections import defaultdict
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle


class OptimizerWrapper(Optimizer):
    """Share the groups, the state and the hooks of the inner optimizer.

    Args:
        inner: the optimizer.
    """

    def __init__(self, inner: Optimizer) -> None:
        # Optimizer.__init__ is not called: it would create param_groups and state again.
        self._inner = inner

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The `param_groups` of the inner optimizer."""
        return self._inner.param_groups

    @property
    def state(self) -> defaultdict[torch.Tensor, Any]:  # type: ignore[override]
        """The `state` of the inner optimizer."""
        return self._inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The `defaults` of the inner optimizer."""
        return self._inner.defaults

    def register_step_pre_hook(self, hook: Any) -> RemovableHandle:
        """Register `hook` with the inner optimizer, whose step calls it."""
        return self._inner.register_step_pre_hook(hook)

    def register_step_post_hook(self, hook: Any) -> RemovableHandle:
        """Register `hook` with the inner optimizer, whose step calls it."""
        return self._inner.register_step_post_hook(hook)

    def register_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Register `hook` with the inner optimizer."""
        return self._inner.register_state_dict_pre_hook(hook, prepend)

    def register_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Register `hook` with the inner optimizer."""
        return self._inner.register_state_dict_post_hook(hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Any, prepend: bool = False
    ) -> RemovableHandle:
        """Register `hook` with the inner optimizer."""
        return self._inner.register_load_state_dict_pre_hook(hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Any, prepend: bool = False
    ) -> RemovableHandle:
        """Register `hook` with the inner optimizer."""
        return self._inner.register_load_state_dict_post_hook(hook, prepend)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, as the inner optimizer does."""
        self._inner.zero_grad(set_to_none)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            f"a {type(self).__name__} is one rank's part of a running training and cannot be "
            "copied or pickled: save its state_dict()"
        )
