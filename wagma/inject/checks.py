"""Arguments of delays and faults: what is wrong is named with its value."""

from __future__ import annotations

import math
from operator import index
from typing import SupportsIndex

__all__ = ["check_count", "check_number", "check_rank"]


def check_count(name: str, value: SupportsIndex, lowest: int, highest: int | None = None) -> int:
    """Returns `value` as an int from `lowest` to `highest`; raises ValueError or TypeError."""
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
    """Returns `rank` as an int; raises ValueError unless it is one of 0 to size - 1."""
    try:
        return check_count("rank", rank, 0, size - 1)
    except ValueError:
        raise ValueError(f"rank is {rank!r}: the {size} ranks are 0 to {size - 1}") from None


def check_number(name: str, value: float, *, infinite: bool = False) -> float:
    """Returns `value` as a float >= 0, finite unless `infinite`; raises ValueError or TypeError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}: a number is needed") from None
    if math.isnan(number) or number < 0:
        raise ValueError(f"{name} is {number!r}: at least 0 is needed")
    if math.isinf(number) and not infinite:
        raise ValueError(f"{name} is {number!r}: a finite number is needed")
    return number
