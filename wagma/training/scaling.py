"""The optimizer's part of gradient scaling.

A `torch.amp.GradScaler` skips a step whose gradients overflowed. If one rank skipped a step the
others would wait for it. An optimizer with ``_step_supports_amp_scaling`` decides itself: the
scaler sets its `found_inf` and `grad_scale`, always calls ``step()``, and deletes both.
"""

import torch
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer


def scale_of(scaler: torch.amp.GradScaler, optimizer: Optimizer) -> float:
    """Return the factor by which `scaler` has multiplied the gradients of `optimizer`.

    Raises:
        TypeError: `scaler` is no scaler.
        RuntimeError: the gradients are divided by the scale already.
    """
    if not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(
            f"scaler is a {type(scaler).__name__}: it has to be the torch.amp.GradScaler that has "
            "scaled the loss"
        )
    known = getattr(scaler, "_per_optimizer_states", {})
    if id(optimizer) in known and known[id(optimizer)]["stage"] is OptState.UNSCALED:
        raise RuntimeError(
            "average_gradients() after scaler.unscale_(): each rank has checked its own gradients "
            "for overflows, and some would make a step that others skip. Average before unscale_()"
        )
    return scaler.get_scale()


def check_pending(optimizer: Optimizer) -> None:
    """Check that no scaler called the step of a `pending` optimizer without gradients.

    Raises:
        RuntimeError: a scaler did, and ``scaler.update()`` would fail next.
    """
    checked = getattr(optimizer, "found_inf", None)
    if checked is not None and not isinstance(checked, torch.Tensor):
        raise RuntimeError(
            "scaler.step(opt) while opt.pending is true and no gradient was computed: the scaler "
            "has nothing to check; call opt.step() then, and neither scaler.step() nor "
            "scaler.update()"
        )


def unscale(optimizer: Optimizer) -> bool:
    """Divide the gradients by the scale, unless the user has.

    It multiplies by the reciprocal in float32, as the scaler does, to get the same bits.

    Args:
        optimizer: the optimizer passed to ``scaler.step``, or one used without a scaler.

    Returns:
        Whether the gradients can be used; after an overflow False, with unchanged gradients.
    """
    found_inf = getattr(optimizer, "found_inf", None)  # a tensor, or 0 where nothing was checked
    if found_inf is None:
        return True
    if float(found_inf) > 0:
        return False
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        inverse = scale.double().reciprocal().float().item()
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        gradients = [one.grad for one in parameters if one.grad is not None]
        if gradients:
            # A number would be rounded to the gradients' type first.
            torch._foreach_mul_(gradients, torch.tensor(inverse, dtype=torch.float64))
    return True


def forget(optimizer: Optimizer) -> None:
    """Delete the scaler's attributes after a failed step, or it would count them twice."""
    for name in ("found_inf", "grad_scale"):
        optimizer.__dict__.pop(name, None)
