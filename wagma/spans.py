"""Lists of numbers, as short texts."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["spans"]


def spans(numbers: Sequence[int]) -> str:
    """'0-2, 5'; of ascending numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
