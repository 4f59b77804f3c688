"""What a method of `wagma reproduce` is made of: pictures, each with the numbers that it shows."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Numbers = dict[str, Any]

_DIGITS = 6  # of a number in the JSON


@dataclass(frozen=True)
class Picture:
    """A figure of a paper."""

    name: str  # of the PNG and of the numbers, such as "fig1"
    title: str  # what the paper shows there, over the picture
    inches: tuple[float, float]  # width and height
    # makes the numbers with the generator, in seconds of CPU; in few if the flag, quick, is set.
    # They hold what `plain` takes.
    compute: Callable[[np.random.Generator, bool], Numbers]
    draw: Callable[[Figure, Numbers], None]  # draws what `plain` made of the numbers


def plain(value: Any) -> Any:
    """Return numbers for JSON: arrays as lists, rounded; None for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(each) for each in value]
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return float(f"{number:.{_DIGITS}g}") if math.isfinite(number) else None
    return int(value) if isinstance(value, np.integer) else value


def logarithmic(axis: Axis, *, fine: bool = False) -> None:
    """Label a logarithmic axis with plain numbers: powers of ten, if `fine` 2 and 5 times as well.

    The axis has its scale already.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    subs = (1.0, 2.0, 5.0) if fine else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=7))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def png(picture: Picture, numbers: Numbers) -> bytes:
    """Return a picture as PNG; the same numbers give the same bytes."""
    import matplotlib.style as mpl_style
    from matplotlib.figure import Figure

    from wagma.report.style import RC

    content = io.BytesIO()
    with mpl_style.context(["default", RC]):
        figure = Figure(figsize=picture.inches, layout="constrained")  # needs no display
        figure.suptitle(picture.title, fontsize=11)
        picture.draw(figure, numbers)
        figure.savefig(content, dpi=110, format="png", metadata={"Software": None})
    return content.getvalue()
