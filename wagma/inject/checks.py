"""Arguments of delays and faults: what is wrong is named with its value."""

from __future__ import annotations

import math
from operator import index
from typing import SupportsIndex

Seconds = float  # by this name `wagma.inject.text` knows which numbers may have a unit of time

# Seconds are eleven days; far more could not be slept.
LARGEST = 1e6


def check_count(name: str, value: SupportsIndex, lowest: int, highest: int | None = None) -> int:
    """Return `value` as an int from `lowest` to `highest`; raise ValueError or TypeError."""
    try:
        count = index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: an integer is needed") from None
    if count < lowest:
        raise ValueError(f"{name} is {count}: at least {lowest} is needed")
    if highest is not None and count > highest:
        raise ValueError(f"{name} is {count}: at most {highest} is possible")
    return count


def check_rank(rank: SupportsIndex, size: int) -> int:
    """Return `rank` as an int; raise ValueError unless it is one of 0 to size - 1."""
    try:
        return check_count("rank", rank, 0, size - 1)
    except ValueError:
        raise ValueError(f"rank is {rank!r}: the {size} ranks are 0 to {size - 1}") from None


def as_number(name: str, value: float) -> float:
    """Return `value` as a float; raise TypeError where it is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}: a number is needed") from None


def check_number(name: str, value: float, *, infinite: bool = False) -> float:
    """Return `value` as a float from 0 to 1e6, or infinity if `infinite`.

    Raises:
        ValueError: it is another number.
        TypeError: it is no number.
    """
    number = as_number(name, value)
    if math.isnan(number) or number < 0:
        raise ValueError(f"{name} is {number!r}: at least 0 is needed")
    if number > LARGEST and not (infinite and math.isinf(number)):
        raise ValueError(f"{name} is {number!r}: at most {LARGEST:g} is possible")
    return number
