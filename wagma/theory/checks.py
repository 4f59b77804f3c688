"""Arguments of formulas: what is wrong is named with its value. Pure."""

from __future__ import annotations

import math
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import as_number, check_count

__all__ = ["check_numbers", "check_time", "check_workers"]


def check_workers(workers: SupportsIndex) -> int:
    """Return the number of workers as an int; raise ValueError unless it is at least 2."""
    size = check_count("workers", workers, 1)
    if size == 1:
        raise ValueError(
            "workers is 1: the formulas are undefined for one worker, which waits for no other; "
            "at least 2 are needed"
        )
    return size


def check_time(name: str, value: float, *, positive: bool = False) -> float:
    """Return a time as a float, finite and at least 0, or more than 0 if `positive`.

    Raises:
        ValueError: it is another number.
        TypeError: it is no number.
    """
    seconds = as_number(name, value)
    if not (math.isfinite(seconds) and (seconds > 0 if positive else seconds >= 0)):
        least = "more than 0" if positive else "at least 0"
        raise ValueError(f"{name} is {seconds!r}: a finite number, {least}, is needed")
    return seconds


def check_numbers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return numbers as float64; raise TypeError where some are none."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {values!r}: numbers are needed") from None
