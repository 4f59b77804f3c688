"""What models learn over wall time, how long ranks wait, and how old contributions are. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wagma.report.curves import Line, floor, panels
from wagma.report.curves import draw as draw_lines
from wagma.report.document import Cell, Part, Plot, Row, Section, table
from wagma.report.records import Found, Training
from wagma.report.sections.axes import bars, legend, palette, short
from wagma.report.sections.words import figure, percent
from wagma.report.style import Looks
from wagma.units import NONE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AGES = 12  # that are shown one by one
MOMENTS = 4  # rows of the table of a curve


def accuracy(found: Found) -> Section:
    """Show accuracy over wall time."""
    known = [each for each in found.trainings if any(run.curve for run in each.runs)]
    parts = [_accuracy(each, palette(found)) for each in known]
    text = (
        "What the average of all ranks' models is worth: the mean of the seeds, in a band from the "
        "smallest to the largest. The dotted line is the target whose time is measured.",
    )
    return Section("accuracy", "Accuracy over wall time", tuple(parts), text)


def _accuracy(training: Training, looked: Looks) -> Part:
    curves = [(run.algorithm, run.curve) for run in training.runs if run.curve]
    names = dict.fromkeys(name for name, _ in curves)
    of_name = {
        name: [(each.seconds, each.accuracy) for other, each in curves if other == name]
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
            every[0].yaxis.set_major_formatter("{x:g}%")
        else:
            every[0].set_ylim(low, None)
        every[0].set_ylabel(short(training.measure))

    end = max((curve.seconds[-1] for _, curve in curves if curve.seconds), default=0.0)
    moments = [end * (step + 1) / MOMENTS for step in range(MOMENTS)]
    rows: list[Row] = []
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
            "accuracy",
            f"{training.measure} over wall time; {training.what}: lines of {shown}",
            draw,
            wide=len(plots) > 1,
        ),
        (table(f"{training.measure} until then; {training.what}", head, rows),),
        (training.path,),
    )


# ---- bars of algorithms beside each other --------------------------------------------------------


def waiting(found: Found) -> Section:
    """Show waiting per rank in trainings; timelines have it in their own table."""
    known = [
        each for each in found.trainings if any(run.waited_seconds_per_rank for run in each.runs)
    ]
    parts = [_waiting(each, palette(found)) for each in known]
    text = (
        "Seconds that each rank waited for others in the whole training: means over the seeds.",
    )
    return Section("waiting", "Waiting per rank", tuple(parts), text)


def _waiting(training: Training, looked: Looks) -> Part:
    waited: dict[str, list[float]] = {}
    for name in training.algorithms:
        runs = [run.waited_seconds_per_rank for run in training.of(name)]
        if len({len(each) for each in runs}) == 1:
            waited[name] = np.mean(np.array(runs, float), axis=0).tolist()
    count = max(map(len, waited.values()), default=0)
    rows: list[Row] = [
        (
            str(rank),
            *(f"{each[rank]:.2f} s" if rank < len(each) else NONE for each in waited.values()),
        )
        for rank in range(count)
    ]

    def draw(figure: Figure) -> None:
        _bars(figure, training, looked, rows, waited, "waited, s").set_xlabel("rank")

    plot = Plot(
        "waiting",
        f"Seconds that each rank waited; {training.what}",
        draw,
        wide=len(waited) * count > 40,
    )
    return _beside(training, plot, "Waited", "rank", rows, waited)


def staleness(found: Found) -> Section:
    """Show how old contributions were."""
    known = [each for each in found.trainings if any(run.staleness for run in each.runs)]
    parts = [_staleness(each, palette(found)) for each in known]
    text = ("By how many versions the contributions were older than the version that they are in.",)
    return Section("staleness", "Staleness", tuple(parts), text)


def _staleness(training: Training, looked: Looks) -> Part:
    counts = {
        name: sum((Counter(run.staleness) for run in training.of(name)), Counter[int]())
        for name in training.algorithms
    }
    counts = {name: each for name, each in counts.items() if each}
    oldest = max((max(each) for each in counts.values()), default=0)
    last = min(oldest, AGES)
    ages = [str(age) for age in range(last)] + [str(last) if oldest == last else f"{last}+"]
    percents = {
        name: [
            100 * sum(n for age, n in each.items() if min(age, last) == place) / each.total()
            for place in range(last + 1)
        ]
        for name, each in counts.items()
    }
    rows: list[Row] = [
        (age, *(percent(each[place]) if each[place] else NONE for each in percents.values()))
        for place, age in enumerate(ages)
    ]

    def draw(figure: Figure) -> None:
        axes = _bars(figure, training, looked, rows, percents, "of the contributions")
        axes.yaxis.set_major_formatter("{x:g}%")
        axes.set_xlabel("age, versions")

    plot = Plot(
        "staleness",
        f"Histogram of the age of contributions; {training.what}",
        draw,
        wide=len(percents) * len(ages) > 40,
    )
    caption = "Share of the contributions by age"
    return _beside(training, plot, caption, "age, versions", rows, percents)


def _bars(
    figure: Figure,
    training: Training,
    looked: Looks,
    rows: Sequence[Row],
    heights: Mapping[str, Sequence[float]],
    label: str,
) -> Axes:
    axes = figure.subplots()
    groups = [str(row[0]) for row in rows]
    bars(
        axes, groups, [(training.label(name), looked[name], each) for name, each in heights.items()]
    )
    axes.set_ylabel(label)
    legend(axes)
    return axes


def _beside(
    training: Training, plot: Plot, caption: str, first: str, rows: list[Row], names: Iterable[str]
) -> Part:
    head = (first, *(training.label(name) for name in names))
    return Part(
        training.what,
        (),
        plot,
        (table(f"{caption}; {training.what}", head, rows),),
        (training.path,),
    )
