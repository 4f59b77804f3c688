"""Accuracy over wall time: of each algorithm the mean of its seeds, and the band they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from wagma.report.style import FAINT, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 5  # lines that one plot shows
POINTS = 200  # of a mean
LOW = 0.02  # share of the points that may lie below the plot: those of the first steps

Floats = npt.NDArray[np.float64]
Curve = tuple[Sequence[float], Sequence[float]]  # seconds and values


@dataclass(frozen=True)
class Line:
    """An algorithm in the plot: a curve for each of its seeds."""

    label: str
    look: Look
    curves: Sequence[Curve]


def panels(lines: Sequence[Line]) -> list[Sequence[Line]]:
    """Return the lines of each plot: at most `MOST`, and about as many in every plot."""
    count = max(1, -(-len(lines) // MOST))
    each = -(-len(lines) // count)
    return [lines[first : first + each] for first in range(0, max(len(lines), 1), each or 1)]


def band(curves: Sequence[Curve]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return seconds, and the mean, the smallest and the largest value of the seeds then.

    It begins when all seeds have a value. A seed that has ended keeps its last one.
    """
    if len(curves) == 1:
        seconds, values = (np.asarray(each, float) for each in curves[0])
        return seconds, values, values, values
    begin = max(seconds[0] for seconds, _ in curves)
    end = max(seconds[-1] for seconds, _ in curves)
    grid = np.linspace(begin, end, POINTS)
    table = np.array([np.interp(grid, seconds, values) for seconds, values in curves])
    return grid, table.mean(axis=0), table.min(axis=0), table.max(axis=0)


def draw(axes: Axes, lines: Sequence[Line], target: float, scale: float = 1.0) -> None:
    """Draw the target as a dotted line, then the lines; values are multiplied by `scale`."""
    axes.axhline(scale * target, color=FAINT, linewidth=1, ls=(0, (2, 2)))
    for line in lines:
        seconds, mean, low, high = band(line.curves)
        axes.plot(
            seconds, scale * mean, color=line.look.colour, ls=line.look.dashes, label=line.label
        )
        if len(line.curves) > 1:
            axes.fill_between(
                seconds, scale * low, scale * high, color=line.look.colour, alpha=0.15, linewidth=0
            )
    axes.set_xlim(left=0)
    axes.grid(axis="y")


def floor(lines: Sequence[Line], target: float) -> float:
    """Return where the plots may begin: few values lie below, and the target does not."""
    values = [np.asarray(values, float) for line in lines for _, values in line.curves]
    return min(target, float(np.quantile(np.concatenate(values), LOW)))
