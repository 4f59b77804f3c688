"""Checks of arguments, whose errors name the argument and its value. Pure."""

import math

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import as_number
from wagma.theory.checks import Floats, check_numbers


def check_vector(
    name: str,
    values: npt.ArrayLike,
    count: int | None = None,
    *,
    positive: bool = False,
    most: float = math.inf,
) -> Floats:
    """Return one finite number for each node, at least 0, or more than 0 if `positive`: (n,).

    Args:
        name: of the argument.
        values: its value.
        count: n; None: any, at least 1.
        positive: whether 0 is refused.
        most: the largest that is possible.

    Raises:
        ValueError: the shape or a number is wrong.
        TypeError: something is no number.
    """
    numbers = check_numbers(name, values)
    if numbers.ndim != 1 or not numbers.size or count not in (None, numbers.size):
        need = "(n,)" if count is None else f"({count},)"
        raise ValueError(
            f"{name} has the shape {numbers.shape}: {need} is needed, one number for each node"
        )
    wrong = ~(np.isfinite(numbers) & ((numbers > 0) if positive else (numbers >= 0)))
    if wrong.any():
        node = int(wrong.argmax())
        least = "more than 0" if positive else "at least 0"
        raise ValueError(
            f"{name}[{node}] is {float(numbers[node])!r}: a finite number, {least}, is needed"
        )
    if (above := numbers > most).any():
        node = int(above.argmax())
        raise ValueError(
            f"{name}[{node}] is {float(numbers[node])!r}: at most {most:g} is possible"
        )
    return numbers


def check_total(name: str, value: float) -> float:
    """Return a number of samples as a float; raise ValueError unless finite and above 0."""
    total = as_number(name, value)
    if not (math.isfinite(total) and total > 0):
        raise ValueError(f"{name} is {total!r}: a finite number of samples above 0 is needed")
    return total


def check_noise_scale(value: float) -> float:
    """Return a noise scale as a float; raise ValueError unless it is at least 0 or infinite."""
    scale = as_number("noise_scale", value)
    if not scale >= 0:
        raise ValueError(
            f"noise_scale is {scale!r}: at least 0 is needed (math.inf: noise alone); average "
            "NoiseScale over more steps"
        )
    return scale
