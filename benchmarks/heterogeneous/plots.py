"""The results as pictures: times and shares by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import MaxNLocator

from wagma.report.heterogeneous import LABELS
from wagma.report.style import BLUE, FAINT, GREEN, INK, PURPLE, VERMILION

from ..pictures import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Result = dict[str, Any]
_COLOURS = {"even": VERMILION, "lb-bsp": PURPLE, "adaptdl": GREEN, "cannikin": BLUE}
_MARKERS = {"even": "s", "lb-bsp": "D", "adaptdl": "^", "cannikin": "o"}


def draw(result: Result, folder: Path) -> list[Path]:
    """Draw a document with runs into the files of `NAMES` in `folder`; return them."""
    paths = []
    for name, drawn in _PICTURES.items():
        with picture(folder / name, 110, {"font.size": 10}) as figure:
            drawn(figure, result)
        paths.append(folder / name)
    return paths


def _title(result: Result) -> str:
    settings, ranks = result["settings"], len(result["relative_times"])
    some = "" if ranks == result["nodes"] else f" of {result['nodes']}"
    return f"cluster {settings['cluster']}, {ranks}{some} emulated nodes"


def _from_zero(axes: Axes, result: Result) -> None:
    """Begin the values at 0, and leave a strip above them for the words of slowdowns."""
    strip = 1.1 if result["settings"]["slowdown"] else 1.0
    axes.set_ylim(0, strip * axes.get_ylim()[1])


def _epochs(axes: Axes, result: Result) -> None:
    """Prepare the axis of epochs, and mark the slowdowns."""
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid()
    for one in result["settings"]["slowdown"]:
        axes.axvline(one["epoch"] - 0.5, color=FAINT, linewidth=1, ls=(0, (2, 2)))
        axes.text(
            one["epoch"] - 0.45,
            0.99,
            f"rank {one['rank']}: {one['factor']:g}x the time",
            transform=axes.get_xaxis_transform(),
            va="top",
            fontsize=8.5,
            color=FAINT,
        )


def _times(figure: Figure, result: Result) -> None:
    """Draw the seconds of a step; where the total batch is chosen also those, and the progress."""
    adapts = result["settings"]["batch_range"] is not None
    figure.set_size_inches(12 if adapts else 7.5, 4.4)
    axes, *more = figure.subplots(1, 3 if adapts else 1, squeeze=False)[0]
    for run in result["runs"]:
        colour, marker = _COLOURS[run["method"]], _MARKERS[run["method"]]
        look: dict[str, Any] = {"color": colour, "marker": marker, "label": LABELS[run["method"]]}
        numbers = np.arange(1, len(run["epochs"]) + 1)
        axes.plot(numbers, [1e3 * one["seconds"] for one in run["epochs"]], **look)
        predicted = [1e3 * (one["predicted"] or np.nan) for one in run["epochs"]]
        if not np.isnan(predicted).all():
            label = f"{LABELS[run['method']]}, predicted"
            axes.plot(
                numbers, predicted, ls="none", marker="_", ms=16, mew=1.5, color=INK, label=label
            )
        for each, name, factor in zip(more, ("total_batch", "pace"), (1, 1e3), strict=False):
            each.plot(numbers, [factor * one[name] for one in run["epochs"]], **look)
    if not adapts:
        ideal = [1e3 * one["ideal"] for one in result["runs"][0]["epochs"]]
        label = "best division, without communication"
        axes.step(numbers, ideal, where="mid", color=FAINT, lw=1.2, ls="dashed", label=label)
    for each, label in zip(
        (axes, *more), ("step, ms", "total batch", "ms per sample's progress"), strict=False
    ):
        each.set_ylabel(label)
        _from_zero(each, result)
        _epochs(each, result)
    axes.legend(loc="lower left" if not adapts else "best")
    figure.suptitle(f"Step time by epoch: {_title(result)}", fontsize=11)


def _shares(figure: Figure, result: Result) -> None:
    """Draw each rank's share of the total batch; ranks that are equally fast have one colour."""
    runs, times = result["runs"], result["relative_times"]
    figure.set_size_inches(max(5.5, 3.6 * len(runs)), 4.2)
    low, high = min(times), max(times)
    colours = mpl.colormaps["viridis"]
    every = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    slowed = {one["rank"] for one in result["settings"]["slowdown"]}
    for axes, run in zip(every, runs, strict=True):
        shares = np.array([one["batches"] for one in run["epochs"]], float)
        shares *= 100 / shares.sum(axis=1, keepdims=True)
        seen: set[str] = set()
        for rank, time in enumerate(times):
            label = f"{time:.2f}" + (", slowed" if rank in slowed else "")
            axes.plot(
                np.arange(1, len(shares) + 1),
                shares[:, rank],
                color=colours(0.9 * (time - low) / (high - low or 1)),
                ls="dashed" if rank in slowed else "solid",
                label=None if label in seen else label,
                lw=1.4,
            )
            seen.add(label)
        axes.set_title(LABELS[run["method"]])
        _epochs(axes, result)
    _from_zero(every[0], result)  # the others share its axis
    every[0].set_ylabel("share of the total batch, %")
    handles, labels = every[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", title="time per\nsample")
    figure.suptitle(f"Shares of the ranks: {_title(result)}", fontsize=11)


_PICTURES = {"batch-times.png": _times, "shares.png": _shares}
NAMES = tuple(_PICTURES)
