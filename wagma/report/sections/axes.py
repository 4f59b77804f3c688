"""What plots have in common: axes of sizes and times, lines with spread, bars in groups."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

from wagma.report.records import Found
from wagma.report.style import Look, looks
from wagma.units import size_text, time_text

LONGEST = 42  # letters of a label
LETTER = 5.0  # width in pt, about
SIZES = 6  # that are named on an axis, about


def short(text: str) -> str:
    """Return a name as a label: one line, and not so long that the plot has no room."""
    line = " ".join(text.split())
    line = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"
    return f" {line}" if line.startswith("_") else line  # legends leave out what begins with "_"


def palette(found: Found) -> dict[str, Look]:
    """Return the look of every series and of every algorithm, the same in all plots of a report."""
    series = looks(name for each in found.benchmarks for name in each.names)
    return series | looks(name for each in found.trainings for name in each.algorithms)


def log_time(axis: Any) -> None:
    """A logarithmic axis of us, for `axes.yaxis` or `axes.xaxis`, with a few named ticks."""
    low, high = axis.get_data_interval()
    decades = np.log10(high / low) if 0 < low < high else 0.0
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,)))
    axis.set_major_formatter(lambda us, _: time_text(us * 1e-6, zeros=False))
    axis.set_minor_formatter(NullFormatter())


def size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """Bytes of the arrays, in powers of two."""
    axes.set_xscale("log", base=2)
    step = max(1, -(-len(sizes) // SIZES))
    axes.xaxis.set_major_locator(FixedLocator(sizes[::step]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda size, _: size_text(int(size)))
    axes.set_xlabel("array")


def delay_axis(axes: Axes, delays: Sequence[float]) -> None:
    """Delays in us, of which the first may be 0."""
    positive = [delay for delay in delays if delay > 0]
    axes.set_xscale("symlog", linthresh=min(positive, default=1.0), linscale=0.6)
    axes.xaxis.set_major_locator(FixedLocator(list(delays)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda us, _: time_text(us * 1e-6, zeros=False) if us else "0")


def line(
    axes: Axes,
    look: Look,
    label: str,
    xs: Sequence[float],
    ys: Sequence[float],
    spread: tuple[Sequence[float], Sequence[float]] | None = None,
) -> None:
    """Draw a line with its markers, and the band of its spread behind it."""
    face = look.colour if look.dashes == "solid" else "white"
    axes.plot(
        xs, ys, color=look.colour, ls=look.dashes, marker=look.marker, mfc=face, label=short(label)
    )
    if spread is not None:
        axes.fill_between(xs, *spread, color=look.colour, alpha=0.12, linewidth=0)


def bars(
    axes: Axes, groups: Sequence[str], rows: Sequence[tuple[str, Look, Sequence[float]]]
) -> None:
    """Draw bars side by side: in each of `groups` one of each row, which has a label."""
    width = 0.84 / len(rows)
    for index, (label, look, values) in enumerate(rows):
        places = np.arange(len(values)) + width * (index - (len(rows) - 1) / 2)
        axes.bar(
            places,
            values,
            0.92 * width,
            facecolor=look.colour,
            edgecolor="white",
            linewidth=0,
            hatch=look.hatch or None,
            label=short(label),
        )
    step = max(1, -(-len(groups) // 16))
    axes.set_xticks(range(0, len(groups), step), groups[::step])
    plain(axes, "y")


def plain(axes: Axes, axis: Any) -> None:
    """Draw a grid on one axis, which begins at 0."""
    axes.grid(axis=axis)
    (axes.set_xlim if axis == "x" else axes.set_ylim)(0, None)


def legend(axes: Axes) -> None:
    """Draw the legend above the plot, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    longest = max(map(len, labels))
    place = axes.get_subplotspec()
    beside = place.get_gridspec().ncols if place else 1
    letters = int(axes.figure.bbox.width / beside / axes.figure.dpi * 72 / LETTER)
    columns = max(1, min(len(labels), letters // (longest + 9)))
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.01), ncols=columns, borderaxespad=0, handlelength=3.2
    )
