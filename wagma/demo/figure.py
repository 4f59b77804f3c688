"""The demo's picture: accuracy over wall time, and what every rank waited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from wagma.demo.report import mean_model_curve, time_to_accuracy
from wagma.demo.settings import ALGORITHMS

__all__ = ["draw"]

COLOURS = {"allreduce": "#c2543d", "wagma": "#2a6f97"}


def draw(record: dict[str, Any], path: Path) -> None:
    """Draws a demo's record into a PNG file.

    Args:
        record: what ``python -m wagma demo --json FILE`` writes.
        path: of the file.
    """
    with mpl.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11, 4.6), layout="constrained")  # needs no display
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_accuracy(left, record)
        _draw_waiting(right, record)
        ranks = len(record["runs"][0]["ranks"])
        figure.suptitle(f"{ranks} ranks, {record['imbalance']}", fontsize=13)
        figure.savefig(path, dpi=150, format="png")


def _draw_accuracy(axes: Any, record: dict[str, Any]) -> None:
    target = record["settings"]["target"]
    axes.axhline(100 * target, color="0.6", linewidth=1, linestyle=(0, (4, 3)))
    lowest = 100.0
    for run in record["runs"]:
        seconds, accuracies = mean_model_curve(run)
        colour = COLOURS[run["algorithm"]]
        name = ALGORITHMS[run["algorithm"]]
        (line,) = axes.plot(seconds, 100 * accuracies, color=colour, linewidth=2, label=name)
        if accuracies.size:
            axes.plot(seconds[-1], 100 * accuracies[-1], "|", color=colour, markersize=16, mew=2)
            lowest = min(lowest, 100 * float(np.quantile(accuracies, 0.02)))
        reached = time_to_accuracy(run, target)
        if reached is not None:
            axes.plot(reached, 100 * target, "o", color=colour, markersize=7)
            label = f"{name}: {100 * target:g} % after {reached:.1f} s"
            line.set_label(label)
    steps = record["settings"]["steps"]
    axes.plot([], [], "|", color="0.3", markersize=12, mew=2, label=f"{steps} steps done")
    axes.set_xlim(left=0)
    axes.set_ylim(max(0.0, 5 * np.floor(lowest / 5)), 100)
    axes.set_xlabel("wall time, s")
    axes.set_ylabel("test accuracy of the averaged model, %")
    axes.grid(axis="y", color="0.92")
    axes.legend(frameon=False, loc="lower right")


def _draw_waiting(axes: Any, record: dict[str, Any]) -> None:
    runs = record["runs"]
    width = 0.8 / len(runs)
    for index, run in enumerate(runs):
        waited = [sum(rank["waited_seconds"]) for rank in run["ranks"]]
        places = np.arange(len(waited)) + width * (index - (len(runs) - 1) / 2)
        bars = axes.bar(
            places,
            waited,
            0.92 * width,
            color=COLOURS[run["algorithm"]],
            label=ALGORITHMS[run["algorithm"]],
        )
        if len(waited) <= 8:
            axes.bar_label(bars, fmt="%.1f", fontsize=9, padding=2, color="0.3")
    axes.set_xticks(range(len(runs[0]["ranks"])))
    axes.set_xlabel("rank")
    axes.set_ylabel("time spent waiting for other ranks, s")
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=len(runs))
