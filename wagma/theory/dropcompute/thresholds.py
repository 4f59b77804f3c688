"""Thresholds and speed-ups, shared by formulas and choices. Pure."""

from __future__ import annotations

import numpy.typing as npt

from wagma.theory.checks import Floats, check_numbers

__all__ = ["EQUAL", "Floats", "check_thresholds"]


# Relative difference below which speed-ups are equal, because of rounding.
EQUAL = 1e-9


def check_thresholds(name: str, values: npt.ArrayLike) -> Floats:
    """Return thresholds, each above 0."""
    taus = check_numbers(name, values)
    if (wrong := taus[~(taus > 0)]).size:
        raise ValueError(
            f"{name} has {float(wrong[0])!r}: more than 0 is needed (math.inf: drop nothing)"
        )
    return taus
