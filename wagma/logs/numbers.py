"""Conversion of a training loop's numbers to lines of JSON and back. Pure."""

import json
import math
import numbers
from collections.abc import Mapping
from typing import Any

# JSON has neither NaN nor infinity: such values are null, and this key maps names to the values.
NOT_FINITE = "not_finite"
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def as_number(name: str, value: Any) -> int | float:
    """Convert a number, or a tensor or array without dimensions, to a Python number.

    Raises:
        TypeError: `value` is something else.
    """
    if type(value) in (int, float):
        return value  # type: ignore[no-any-return]
    number = value
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        number = value.item()
    if isinstance(number, numbers.Integral):
        return int(number)
    if isinstance(number, numbers.Real):
        return float(number)
    shape = getattr(value, "shape", None)
    what = type(value).__name__
    if shape:
        what += f" of shape {tuple(shape)}"
    raise TypeError(
        f"{name} is a {what}: give a number, or a tensor without dimensions such as loss.mean()"
    )


def dump(line: Mapping[str, Any]) -> str:
    """Return a line of standard JSON."""
    try:
        return json.dumps(line, allow_nan=False)
    except ValueError:
        pass
    odd = {
        name: str(value)
        for name, value in line.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    return json.dumps({**line, **dict.fromkeys(odd), NOT_FINITE: odd}, allow_nan=False)


def restore(line: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers that `dump` wrote, given the parsed line."""
    odd = line.pop(NOT_FINITE, {})
    return {**line, **{name: _WORDS[word] for name, word in odd.items()}}
