"""The results as pictures, a PNG each. Algorithms look as in a report (`wagma.report.style`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import stdev
from typing import Any

import matplotlib.style as mpl_style
import numpy as np
from matplotlib.figure import Figure

from wagma.report.style import FAINT, GRID, INK, RC, Look, looks

from .table import by_algorithm

__all__ = ["NAMES", "draw"]

Result = dict[str, Any]

STYLE: Any = {**RC, "font.size": 11, "legend.fontsize": 10}
# Ages of contributions that have a bar of their own; older ones share the last.
OLDEST = 12


def draw(result: Result, folder: Path) -> list[Path]:
    """Draws everything.

    Args:
        result: of `document.document`, with at least one run.
        folder: where the files of `NAMES` are put; it is made.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    height = max(4.0, 1.5 + 0.36 * len(by_algorithm(result["runs"])))  # a line for each, at least
    for name, axes in _PICTURES.items():
        with mpl_style.context(["default", STYLE]):
            figure = Figure(figsize=(9.5, height), layout="constrained")  # needs no display
            axes(figure, result)
            figure.suptitle(_title(result), fontsize=12)
            figure.savefig(folder / name, dpi=100, format="png")
        paths.append(folder / name)
    return paths


def _title(result: Result) -> str:
    settings = result["settings"]
    computing = (
        ""
        if settings["compute"] is None
        else (f", {1e3 * settings['compute']:g} ms per step (emulated)")
    )
    ranks = result["environment"]["ranks"]
    return f"{settings['task']}, {ranks} ranks, {result['imbalance']}{computing}"


def _looks(result: Result) -> dict[str, Look]:
    """By label."""
    found = looks(run["algorithm"] for run in result["runs"])
    return {run["label"]: found[run["algorithm"]] for run in result["runs"]}


def _throughput(figure: Figure, result: Result) -> None:
    axes = figure.subplots()
    runs = by_algorithm(result["runs"])
    places = np.arange(len(runs))
    ideal = [np.mean([run["ideal_throughput"] for run in of]) for of in runs.values()]
    real = [np.mean([run["throughput"] for run in of]) for of in runs.values()]
    spread = [_deviation([run["throughput"] for run in of]) for of in runs.values()]
    looked = _looks(result)
    axes.barh(places, ideal, 0.8, color=GRID, label="without communication")
    axes.barh(places, real, 0.5, color=[looked[label].colour for label in runs])
    if any(spread):
        axes.errorbar(real, places, xerr=spread, fmt="none", color=INK, capsize=3)
    for place, (value, bound, error) in enumerate(zip(real, ideal, spread, strict=True)):
        axes.text(
            max(value + error, bound),
            place,
            f"  {value:,.0f}  ({value / bound:.0%})",
            va="center",
            fontsize=10,
        )
    axes.set_xlim(right=1.2 * axes.get_xlim()[1])  # for the figures beside the bars
    axes.set_yticks(places, list(runs))
    axes.invert_yaxis()
    axes.set_xlabel("throughput of all ranks, samples/s")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _deviation(values: list[float]) -> float:
    """The standard deviation, as in the table; 0 of a single value."""
    return stdev(values) if len(values) > 1 else 0.0


def _accuracy(figure: Figure, result: Result) -> None:
    axes = figure.subplots()
    measures, target = result["measures"], result["settings"]["target"]
    scale = 100 if measures["in_percent"] else 1
    axes.axhline(scale * target, color=FAINT, linewidth=1, linestyle=(0, (2, 2)))
    values: list[float] = [scale * target]
    looked = _looks(result)
    for label, runs in by_algorithm(result["runs"]).items():
        for run in runs:
            curve = run["curve"]
            heights = scale * np.array(curve["accuracy"])
            axes.plot(
                curve["seconds"],
                heights,
                color=looked[label].colour,
                linestyle=looked[label].dashes,
                linewidth=1.6,
                label=label if run is runs[0] else None,
            )
            values += heights.tolist()
    axes.set_ylim(bottom=float(np.quantile(values, 0.05)))
    axes.set_xlim(left=0)
    axes.set_xlabel("wall time, s")
    unit = ", %" if measures["in_percent"] else ""
    axes.set_ylabel(f"{measures['name']} of the averaged model{unit}")
    axes.grid(axis="y")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3.2)


def _staleness(figure: Figure, result: Result) -> None:
    runs = {
        label: shares
        for label, of in by_algorithm(result["runs"]).items()
        if (shares := _ages(of)).sum() > 0
    }
    if not runs:
        figure.subplots().set_axis_off()
        return
    columns = min(4, len(runs))
    grid = figure.subplots(
        -(-len(runs) // columns), columns, sharex=True, sharey=True, squeeze=False
    ).flat
    looked = _looks(result)
    for axes, (label, shares) in zip(grid, runs.items(), strict=False):
        axes.bar(range(OLDEST + 1), 100 * shares, color=looked[label].colour)
        axes.set_title(label, fontsize=10)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, 120)
        axes.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
        axes.set_xticks([0, 4, 8, OLDEST], ["0", "4", "8", f"{OLDEST}+"])
    for axes in list(grid)[len(runs) :]:
        axes.set_axis_off()
    figure.supxlabel("age of averaged contributions, versions", fontsize=11)
    figure.supylabel("share, %", fontsize=11)


def _ages(runs: list[dict[str, Any]]) -> Any:
    counts = np.zeros(OLDEST + 1)
    for run in runs:
        for age, number in run["staleness_histogram"].items():
            counts[min(int(age), OLDEST)] += number
    return counts / max(counts.sum(), 1)


def _waiting(figure: Figure, result: Result) -> None:
    axes = figure.subplots()
    runs = by_algorithm(result["runs"])
    waited = np.array(
        [np.mean([run["waited_seconds_per_rank"] for run in of], axis=0) for of in runs.values()]
    )
    image = axes.imshow(waited, aspect="auto", cmap="YlOrRd", vmin=0)
    for (row, rank), seconds in np.ndenumerate(waited):
        dark = seconds > 0.6 * waited.max()
        axes.text(
            rank,
            row,
            f"{seconds:.1f}",
            ha="center",
            va="center",
            fontsize=9,
            color="white" if dark else INK,
        )
    axes.set_yticks(range(len(runs)), list(runs))
    axes.set_xticks(range(waited.shape[1]))
    axes.set_xlabel("rank")
    figure.colorbar(image, label="time spent waiting for other ranks, s")


_PICTURES: dict[str, Callable[[Figure, Result], None]] = {
    "throughput.png": _throughput,
    "accuracy.png": _accuracy,
    "staleness.png": _staleness,
    "waiting.png": _waiting,
}
NAMES = tuple(_PICTURES)
