"""How long each rank waited for others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from wagma.report.document import Cell, Part, Plot, Section, table
from wagma.report.records import Found, Training
from wagma.report.sections.axes import bars, legend, palette
from wagma.report.sections.words import NONE, slug
from wagma.report.style import Look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["waiting"]


def waiting(found: Found) -> Section | None:
    """Waiting per rank, in trainings; timelines have it in their own table."""
    looked = palette(found)
    known = [each for each in found.trainings if any(len(run.waited_s) for run in each.runs)]
    parts = [_waiting(each, looked, index) for index, each in enumerate(known)]
    if not parts:
        return None
    text = (
        "Seconds that each rank waited for others in the whole training: means over the seeds.",
    )
    return Section("waiting", "Waiting per rank", tuple(parts), text)


def _waiting(training: Training, looked: Mapping[str, Look], index: int) -> Part:
    waited: dict[str, list[float]] = {}
    for name in training.algorithms:
        runs = [run.waited_s for run in training.of(name) if len(run.waited_s)]
        if runs and len({len(each) for each in runs}) == 1:
            waited[name] = np.mean(np.array(runs, float), axis=0).tolist()
    ranks = [str(rank) for rank in range(max(map(len, waited.values()), default=0))]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        rows = [(training.label(name), looked[name], each) for name, each in waited.items()]
        bars(axes, ranks, rows)
        axes.set_xlabel("rank")
        axes.set_ylabel("waited, s")
        legend(axes)

    rows: list[tuple[str | Cell, ...]] = [
        (
            rank,
            *(f"{each[place]:.2f} s" if place < len(each) else NONE for each in waited.values()),
        )
        for place, rank in enumerate(ranks)
    ]
    head = ("rank", *(training.label(name) for name in waited))
    return Part(
        training.what,
        (),
        Plot(
            slug("waiting", index + 1),
            f"Seconds that each rank waited; {training.what}",
            draw,
            wide=len(waited) * len(ranks) > 40,
        ),
        (table(f"Waited; {training.what}", head, rows),),
        (training.path,),
    )
