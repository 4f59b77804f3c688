"""The results as pictures, a PNG each. Algorithms look as in a report (`wagma.report.style`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from wagma.report.curves import Line, floor, panels
from wagma.report.curves import draw as draw_lines
from wagma.report.style import FAINT, GRID, INK, Look, looks
from wagma.units import plural

from ..pictures import picture
from .table import by_algorithm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Result = dict[str, Any]

STYLE = {"font.size": 11, "legend.fontsize": 10}
# Ages of contributions that have a bar of their own; older ones share the last.
OLDEST = 12
FIGURES = 24  # ranks that there is room for figures of


def draw(result: Result, folder: Path) -> list[Path]:
    """Draw a document with runs into the files of `NAMES` in `folder`, which is made; list them."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    height = max(4.0, 1.5 + 0.36 * len(by_algorithm(result["runs"])))  # a line for each, at least
    for name, axes in _PICTURES.items():
        with picture(folder / name, 100, STYLE, figsize=(9.5, height)) as figure:
            axes(figure, result)
            figure.suptitle(_title(result), fontsize=12)
        paths.append(folder / name)
    return paths


def _title(result: Result) -> str:
    settings = result["settings"]
    computing = ""
    if settings["compute"] is not None:
        computing = f", {1e3 * settings['compute']:g} ms per step (emulated)"
    ranks = result["environment"]["ranks"]
    return f"{settings['task']}, {ranks} ranks, {result['imbalance']}{computing}"


def _looks(result: Result) -> dict[str, Look]:
    """Return the look of each algorithm by its label."""
    found = looks(run["algorithm"] for run in result["runs"])
    return {run["label"]: found[run["algorithm"]] for run in result["runs"]}


def _throughput(figure: Figure, result: Result) -> None:
    axes = figure.subplots()
    runs = by_algorithm(result["runs"])
    places = np.arange(len(runs))
    ideal = [np.mean([run["ideal_throughput"] or 0.0 for run in of]) for of in runs.values()]
    real = [np.mean([run["throughput"] for run in of]) for of in runs.values()]
    spread = [_deviation([run["throughput"] for run in of]) for of in runs.values()]
    looked = _looks(result)
    axes.barh(
        places,
        ideal,
        0.8,
        color=GRID,
        label="without communication, and the share of it that was reached",
    )
    axes.barh(places, real, 0.5, color=[looked[label].colour for label in runs])
    if any(spread):
        spread_of = f"standard deviation of {_seeds(result)}"
        axes.errorbar(real, places, xerr=spread, fmt="none", color=INK, capsize=3, label=spread_of)
    for place, (value, bound, error) in enumerate(zip(real, ideal, spread, strict=True)):
        axes.text(
            max(value + error, bound),
            place,
            f"  {value:,.0f}  ({value / bound:.0%})"
            if bound
            else f"  {value:,.0f}  (bound unknown)",
            va="center",
            fontsize=10,
        )
    axes.set_xlim(right=1.2 * axes.get_xlim()[1])  # for the figures beside the bars
    axes.set_yticks(places, list(runs))
    axes.invert_yaxis()
    axes.set_xlabel("throughput of all ranks, samples/s")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def _seeds(result: Result) -> str:
    return plural(len(result["settings"]["seeds"]), "seed")


def _deviation(values: list[float]) -> float:
    """Return the standard deviation, as in the table; 0 of a single value."""
    return stdev(values) if len(values) > 1 else 0.0


def _accuracy(figure: Figure, result: Result) -> None:
    count = len(panels(_lines(result)))
    every = figure.subplots(1, count, sharex=True, sharey=True, squeeze=False)[0]
    _learning(every, result)
    for axes in every:
        axes.legend(loc="lower right", handlelength=3.2)
    several = len(result["settings"]["seeds"]) > 1
    bands = f"; lines and bands: mean, lowest and highest of {_seeds(result)}" if several else ""
    figure.supxlabel(f"dotted: the target, {_target(result)}{bands}", fontsize=10)


def _learning(every: Sequence[Axes], result: Result) -> None:
    """Draw the lines, in as many plots as they need."""
    lines = _lines(result)
    measures, target = result["measures"], result["settings"]["target"]
    scale = 100 if measures["in_percent"] else 1
    lowest = 5 * np.floor(scale * floor(lines, target) / 5)
    for axes, shown in zip(every, panels(lines), strict=True):
        draw_lines(axes, shown, target, scale)
        axes.set_xlabel("wall time, s")
        axes.set_ylim(bottom=lowest)
        if measures["in_percent"]:
            axes.set_ylim(top=100)
    unit = ", %" if measures["in_percent"] else ""
    every[0].set_ylabel(f"{measures['name']} of the averaged model{unit}")


def _lines(result: Result) -> list[Line]:
    looked = _looks(result)
    curves = {
        label: [(run["curve"]["seconds"], run["curve"]["accuracy"]) for run in of]
        for label, of in by_algorithm(result["runs"]).items()
    }
    return [Line(label, looked[label], of) for label, of in curves.items()]


def _target(result: Result) -> str:
    target = result["settings"]["target"]
    return f"{100 * target:g} %" if result["measures"]["in_percent"] else f"{target:g}"


def draw_overview(result: Result, file: Path) -> Path:
    """Draw accuracy over wall time, and beside it what every rank waited; return the file, a PNG.

    Its folder is made.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with picture(file, 150, STYLE, figsize=(11, 4.8)) as figure:
        count = len(panels(_lines(result)))
        *every, right = figure.subplots(1, count + 1, width_ratios=(*[3] * count, 2))
        _learning(every, result)
        _mark(every, result)
        _waiting_bars(right, result)
        figure.suptitle(_title(result), fontsize=13)
    return file


def _mark(every: Sequence[Axes], result: Result) -> None:
    """Mark where the target was reached and where the training ended, and say it in the legend."""
    settings = result["settings"]
    target = settings["target"] * (100 if result["measures"]["in_percent"] else 1)
    for axes, shown in zip(every, panels(_lines(result)), strict=True):
        for line in shown:
            runs = by_algorithm(result["runs"])[line.label]
            colour = line.look.colour
            reached = [run["time_to_target"] for run in runs]
            (drawn,) = (each for each in axes.lines if each.get_label() == line.label)
            if None not in reached:
                seconds = float(np.mean(reached))
                axes.plot(seconds, target, "o", color=colour, markersize=7)
                drawn.set_label(f"{line.label}: {_target(result)} after {seconds:.1f} s")
            seconds, values = (np.asarray(each)[-1] for each in drawn.get_data())
            axes.plot(seconds, values, "|", color=colour, markersize=16, markeredgewidth=2)
        label = f"{settings['steps']} steps done"
        axes.plot([], [], "|", color=FAINT, markersize=11, markeredgewidth=2, label=label)
        axes.legend(loc="lower right", handlelength=3.2)


def _waiting_bars(axes: Axes, result: Result) -> None:
    looked = _looks(result)
    runs = by_algorithm(result["runs"])
    width = 0.84 / len(runs)
    for index, (label, of) in enumerate(runs.items()):
        waited = np.mean([run["waited_seconds_per_rank"] for run in of], axis=0)
        places = np.arange(len(waited)) + width * (index - (len(runs) - 1) / 2)
        bars = axes.bar(places, waited, 0.92 * width, color=looked[label].colour, label=label)
        if len(runs) <= 4 and len(waited) * len(runs) <= 16:
            axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2, color=FAINT)
    axes.set_xticks(range(result["environment"]["ranks"]))
    axes.set_xlabel("rank")
    axes.set_ylabel("time spent waiting for other ranks, s")
    axes.grid(axis="y")


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
    rows = -(-len(runs) // columns)
    grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    looked = _looks(result)
    for axes, (label, shares) in zip(grid, runs.items(), strict=False):
        axes.bar(range(OLDEST + 1), 100 * shares, color=looked[label].colour)
        axes.set_title(label, fontsize=10)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, 120)
        axes.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
        axes.set_xticks([0, 4, 8, OLDEST], ["0", "4", "8", f"{OLDEST}+"])
    for place in range(len(runs), len(grid)):
        grid[place].set_axis_off()
        grid[place - columns].tick_params(labelbottom=True)  # the lowest of its column
    figure.supxlabel("age of averaged contributions, versions", fontsize=11)
    figure.supylabel("share of contributions, %", fontsize=11)


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
        if waited.shape[1] > FIGURES:
            break
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
    axes.xaxis.set_major_locator(MaxNLocator(FIGURES, integer=True))
    axes.set_xlabel("rank")
    figure.colorbar(image, label="time spent waiting for other ranks, s")


_PICTURES: dict[str, Callable[[Figure, Result], None]] = {
    "throughput.png": _throughput,
    "accuracy.png": _accuracy,
    "staleness.png": _staleness,
    "waiting.png": _waiting,
}
NAMES = tuple(_PICTURES)
