"""Check the arguments of formulas, and shape their results. Pure."""

import math
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import as_number, check_count

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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


def check_numbers(name: str, values: npt.ArrayLike) -> Floats:
    """Return numbers as float64; raise TypeError where some are none."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {values!r}: numbers are needed") from None


def check_passed(name: str, values: npt.ArrayLike) -> Floats:
    """Return times or iterations, each finite and at least 0, as float64; raise ValueError."""
    passed = check_numbers(name, values)
    if (wrong := passed[~(np.isfinite(passed) & (passed >= 0))]).size:
        raise ValueError(f"{name} has {float(wrong[0])!r}: finite numbers, at least 0, are needed")
    return passed


def check_share(name: str, value: float) -> float:
    """Return a number from 0 to 1 as a float; raise ValueError."""
    if (share := check_time(name, value)) > 1:
        raise ValueError(f"{name} is {share!r}: at most 1 is possible")
    return share


def shaped(values: Floats) -> float | Floats:
    """Return a float for a single number, and an array as it is."""
    return values if values.ndim else float(values)
