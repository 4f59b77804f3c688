"""Scale graphs of simulations: figures against the number of ranks, per method. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wagma.report.style import INK, looks
from wagma.reproduce.picture import Numbers, Picture, logarithmic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from wagma.simulate.rows import Row


def pictures(title: str) -> tuple[Picture, ...]:
    """Return the pictures, whose numbers are those of `numbers`."""

    def none(rng: np.random.Generator, quick: bool) -> Numbers:  # noqa: ARG001
        return {}

    inches = (9.5, 5.2)
    return (
        Picture("throughput", f"Throughput, {title}", inches, none, _throughput),
        Picture("efficiency", f"Share of the ideal, {title}", inches, none, _efficiency),
        Picture("late", f"Late calls, {title}", inches, none, _late),
    )


def numbers(rows: list[Row]) -> Numbers:
    """Return what the pictures show: for each method its figures over the ranks."""
    found: Numbers = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(row["method"], {}).setdefault(name, []).append(value)
    return found


def _throughput(figure: Figure, found: Numbers) -> None:
    axes = figure.subplots()
    _lines(axes, found, "throughput", 1.0)
    longest = max(found.values(), key=lambda each: len(each["ranks"]))
    axes.plot(longest["ranks"], longest["ideal"], color=INK, ls="dashed", lw=1, label="ideal")
    if len(longest["ranks"]) == 1:  # a line would not be seen
        axes.lines[-1].set_marker("_")
    axes.set(yscale="log", ylabel="local batches per second, all ranks")
    logarithmic(axes.yaxis, fine=True)
    _finish(figure, axes, found)


def _efficiency(figure: Figure, found: Numbers) -> None:
    axes = figure.subplots()
    _lines(axes, found, "efficiency", 100.0)
    axes.set(ylabel="throughput, % of the ideal", ylim=(0, None))
    _finish(figure, axes, found)


def _late(figure: Figure, found: Numbers) -> None:
    axes = figure.subplots()
    _lines(axes, {name: each for name, each in found.items() if any(each["late"])}, "late", 100.0)
    axes.set(ylabel="late calls, %", ylim=(0, None))
    _finish(figure, axes, found)


def _lines(axes: Axes, found: Numbers, figure: str, factor: float) -> None:
    for name, look in looks(found).items():
        axes.plot(
            found[name]["ranks"],
            factor * np.array(found[name][figure]),
            color=look.colour,
            ls=look.dashes,
            marker=look.marker,
            label=name,
        )


def _finish(figure: Figure, axes: Axes, found: Numbers) -> None:
    ranks = sorted({count for each in found.values() for count in each["ranks"]})
    axes.set(xscale="log", xlabel="ranks")
    axes.set_xticks(ranks, [f"{count:,}" for count in ranks])
    axes.minorticks_off()
    axes.grid()
    if axes.lines:
        figure.legend(loc="outside right upper")
