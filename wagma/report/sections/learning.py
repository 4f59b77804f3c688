"""What the models learn over wall time, and of which age the contributions are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter

from wagma.report.curves import Line, floor, panels
from wagma.report.curves import draw as draw_lines
from wagma.report.document import Cell, Part, Plot, Section, table
from wagma.report.records import Found, Training
from wagma.report.sections.axes import bars, legend, palette, short
from wagma.report.sections.words import NONE, figure, share, slug
from wagma.report.style import Look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["accuracy", "staleness"]

Looks = Mapping[str, Look]
AGES = 12  # that are shown one by one
MOMENTS = 4  # rows of the table of a curve


def accuracy(found: Found) -> Section | None:
    """Accuracy over wall time."""
    looked = palette(found)
    known = [each for each in found.trainings if any(run.curve for run in each.runs)]
    parts = [_accuracy(each, looked, index) for index, each in enumerate(known)]
    if not parts:
        return None
    text = (
        "What the average of all ranks' models is worth: the mean of the seeds, in a band from the "
        "smallest to the largest. The dotted line is the target whose time is measured.",
    )
    return Section("accuracy", "Accuracy over wall time", tuple(parts), text)


def _accuracy(training: Training, looked: Looks, index: int) -> Part:
    curves = [(run.algorithm, run.curve) for run in training.runs if run.curve]
    names = dict.fromkeys(name for name, _ in curves)
    of_name = {
        name: [(each.seconds, each.accuracies) for other, each in curves if other == name]
        for name in names
    }
    drawn = [Line(short(training.label(name)), looked[name], of_name[name]) for name in names]
    plots = panels(drawn)
    scale = 100 if training.in_percent else 1

    def draw(figure: Figure) -> None:
        low = scale * floor(drawn, training.target)
        every = figure.subplots(1, len(plots), sharex=True, sharey=True, squeeze=False)[0]
        for axes, lines in zip(every, plots, strict=True):
            draw_lines(axes, lines, training.target, scale)
            axes.set_xlabel("wall time, s")
            legend(axes)
        if training.in_percent:
            every[0].set_ylim(max(0.0, 5 * np.floor(low / 5)), 100)
            every[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        else:
            every[0].set_ylim(low, None)
        every[0].set_ylabel(short(training.measure))

    end = max((curve.seconds[-1] for _, curve in curves if curve.seconds), default=0.0)
    moments = [end * (step + 1) / MOMENTS for step in range(MOMENTS)]
    rows: list[tuple[str | Cell, ...]] = []
    for name in names:
        cells: list[str | Cell] = [training.label(name)]
        for moment in moments:
            reached = [
                values[place - 1]
                for seconds, values in of_name[name]
                if (place := int(np.searchsorted(seconds, moment, side="right"))) > 0
            ]
            cells.append(figure(reached, training.measured))
        rows.append(tuple(cells))
    head = ("algorithm", *(f"{moment:.3g} s" for moment in moments))
    shown = ", ".join(training.label(name) for name in names)
    return Part(
        training.what,
        (),
        Plot(
            slug("accuracy", index + 1),
            f"{training.measure} over wall time; {training.what}: lines of {shown}",
            draw,
            wide=len(plots) > 1,
        ),
        (table(f"{training.measure} until then; {training.what}", head, rows),),
        (training.path,),
    )


# ---- staleness -----------------------------------------------------------------------------------


def staleness(found: Found) -> Section | None:
    """How old contributions were."""
    looked = palette(found)
    known = [each for each in found.trainings if any(run.staleness for run in each.runs)]
    parts = [_staleness(each, looked, index) for index, each in enumerate(known)]
    if not parts:
        return None
    text = ("By how many versions the contributions were older than the version that they are in.",)
    return Section("staleness", "Staleness", tuple(parts), text)


def _staleness(training: Training, looked: Looks, index: int) -> Part:
    shares = {}
    for name in training.algorithms:
        counts: dict[int, float] = {}
        for run in training.of(name):
            for age, count in run.staleness.items():
                counts[age] = counts.get(age, 0.0) + count
        total = sum(counts.values())
        if total > 0:
            shares[name] = {age: count / total for age, count in counts.items()}
    oldest = max(max(each) for each in shares.values()) if shares else 0
    last = min(oldest, AGES)
    ages = [str(age) for age in range(last)] + [str(last) if oldest == last else f"{last}+"]
    heights = {
        name: [*(each.get(age, 0.0) for age in range(last)), _from(each, last)]
        for name, each in shares.items()
    }

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        rows = [
            (training.label(name), looked[name], [100 * height for height in each])
            for name, each in heights.items()
        ]
        bars(axes, ages, rows)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        axes.set_xlabel("age, versions")
        axes.set_ylabel("of the contributions")
        legend(axes)

    rows: list[tuple[str | Cell, ...]] = [
        (
            age,
            *(share(heights[name][place]) if heights[name][place] else NONE for name in heights),
        )
        for place, age in enumerate(ages)
    ]
    head = ("age, versions", *(training.label(name) for name in heights))
    return Part(
        training.what,
        (),
        Plot(
            slug("staleness", index + 1),
            f"Histogram of the age of contributions; {training.what}",
            draw,
            wide=len(heights) * len(ages) > 40,
        ),
        (table(f"Share of the contributions by age; {training.what}", head, rows),),
        (training.path,),
    )


def _from(shares: Mapping[int, float], age: int) -> float:
    """The share of those that are at least so old."""
    return sum(value for each, value in shares.items() if each >= age)
