"""The optimizer's part of gradient scaling.

A `torch.amp.GradScaler` leaves a step out whose gradients overflowed. Left out on one rank, it
would be missing there for the others. To an optimizer with ``_step_supports_amp_scaling`` the
scaler leaves the decision: it sets `found_inf` and `grad_scale` on it, calls ``step()`` in any
case, and deletes both.
"""

from __future__ import annotations

import torch
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer

__all__ = ["check_pending", "forget", "scale_of", "unscale"]


def scale_of(scaler: torch.amp.GradScaler, optimizer: Optimizer) -> float:
    """Return the factor by which `scaler` has multiplied the gradients of `optimizer`.

    Raises:
        TypeError: it is no scaler.
        RuntimeError: they are divided by it already.
    """
    if not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(
            f"scaler is a {type(scaler).__name__}: it has to be the torch.amp.GradScaler that has "
            "scaled the loss"
        )
    known = getattr(scaler, "_per_optimizer_states", {})
    if id(optimizer) in known and known[id(optimizer)]["stage"] is OptState.UNSCALED:
        raise RuntimeError(
            "average_gradients() after scaler.unscale_(): each rank has looked for overflows of "
            "its own, and some would make a step that others leave out. Average before unscale_()"
        )
    return scaler.get_scale()


def check_pending(optimizer: Optimizer) -> None:
    """Check that a scaler has not called the step of a `pending` optimizer without gradients.

    Raises:
        RuntimeError: it has, and ``scaler.update()`` would fail next.
    """
    checked = getattr(optimizer, "found_inf", None)
    if checked is not None and not isinstance(checked, torch.Tensor):
        raise RuntimeError(
            "scaler.step(opt) where opt.pending is true and no gradient was computed: the scaler "
            "has nothing to look at; call opt.step() there, and neither scaler.step() nor "
            "scaler.update()"
        )


def unscale(optimizer: Optimizer) -> bool:
    """Divides the gradients by the scale, unless the user has.

    The gradients are multiplied by the reciprocal in float32, as the scaler does, so that they are
    the same to the bit.

    Args:
        optimizer: that ``scaler.step`` was given, or that is used without a scaler.

    Returns:
        Whether the gradients can be used: False after an overflow, and they are not changed.
    """
    found_inf = getattr(optimizer, "found_inf", None)  # a tensor, or 0 where nothing was checked
    if found_inf is None:
        return True
    if float(found_inf) > 0:
        return False
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        inverse = scale.double().reciprocal().float().item()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(inverse)
    return True


def forget(optimizer: Optimizer) -> None:
    """Deletes what the scaler does not delete when the step raises, and would count twice."""
    for name in ("found_inf", "grad_scale"):
        optimizer.__dict__.pop(name, None)
