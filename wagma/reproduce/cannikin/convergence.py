"""Time to an accuracy on digits, by method: Figs. 5, 7 and 8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wagma.report.style import AMBER, BLUE, GREEN, VERMILION
from wagma.reproduce.cannikin.simulated import Clock
from wagma.reproduce.cannikin.training import Curve, split, train
from wagma.reproduce.digits import load
from wagma.reproduce.picture import Numbers
from wagma.theory.cannikin import make_planner
from wagma.theory.cannikin.clusters import cluster
from wagma.theory.cannikin.planners import Baseline
from wagma.theory.checks import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SMALLEST, LARGEST = 32, 1024
RATE = 0.5  # with the smallest total batch
SCALE = 0.1  # of the images: learning rates of 0.1 to 1 are stable
STEP_BATCH = 256  # samples that take a second at best
TARGETS = (0.90, 0.93)
BEYOND = 0.005  # the mean of an epoch with which training ends, over the last target
WINDOW = 10  # steps over which accuracy is averaged
POINTS = 200  # of a curve that is drawn
METHODS: dict[str, tuple[Baseline | None, str, str]] = {
    "even": ("even", VERMILION, "even split (DDP)"),
    "lb-bsp": ("lb-bsp", AMBER, "LB-BSP"),
    "adaptdl": ("adaptdl", GREEN, "AdaptDL"),
    "cannikin": (None, BLUE, "Cannikin"),
}


def find_convergence(rng: np.random.Generator, quick: bool) -> Numbers:
    """Return when each method reaches an accuracy on cluster B, and a curve of each.

    In a run all methods begin with the same weights, and take the same images in the same order.
    """
    from threadpoolctl import threadpool_limits

    images, labels = load()
    runs, targets, seconds = (1, (0.8,), 500.0) if quick else (5, TARGETS, 4000.0)
    curves: dict[str, list[Curve]] = {name: [] for name in METHODS}
    with threadpool_limits(1):  # matrices are too small for threads
        for _ in range(runs):
            seed = int(rng.integers(2**32))
            for name, (baseline, *_) in METHODS.items():
                own = np.random.default_rng(seed)
                data = split(SCALE * images, labels, own)
                model = cluster("B", batch=STEP_BATCH)
                fixed = baseline in ("even", "lb-bsp")
                totals = SMALLEST if fixed else (SMALLEST, LARGEST)
                curves[name].append(
                    train(
                        make_planner(len(model.nodes), totals, baseline=baseline),
                        Clock(model, np.random.default_rng(seed + 1)),
                        data,
                        own,
                        rate=RATE,
                        seconds=seconds,
                        target=targets[-1] + BEYOND,
                    )
                )
    seconds_to = {
        name: [[_reached(curve, target) for curve in found] for target in targets]
        for name, found in curves.items()
    }
    cannikin = np.array(seconds_to["cannikin"])

    def saved(times: list[list[float]]) -> Floats:
        """Return the median of what was saved in each run; NaN: the others did not end."""
        others = np.array(times)
        ended = np.isfinite(others).all(axis=1)
        less: Floats = np.where(ended, np.median(1 - cannikin / others, axis=1), np.nan)
        return less

    return {
        "targets": targets,
        "seconds": seconds_to,
        "median_seconds": {name: np.median(times, axis=1) for name, times in seconds_to.items()},
        "less_than": {name: saved(each) for name, each in seconds_to.items() if name != "cannikin"},
        "curves": {name: _thinned(found[0]) for name, found in curves.items()},
    }


def _smooth(values: Floats) -> Floats:
    """Return means of the last `WINDOW` values, of fewer at the beginning."""
    sums = np.append(0.0, values.cumsum())
    last = np.arange(1, len(sums))
    first = np.maximum(last - WINDOW, 0)
    means: Floats = (sums[last] - sums[first]) / (last - first)
    return means


def _reached(curve: Curve, target: float) -> float:
    """Return the first second with this accuracy; infinite: there is none."""
    reached = np.flatnonzero(_smooth(curve.accuracy) >= target)
    return float(curve.seconds[reached[0]]) if reached.size else np.inf


def _thinned(curve: Curve) -> dict[str, Any]:
    """Return what is drawn of a run."""
    steps = np.unique(np.linspace(0, len(curve.seconds) - 1, POINTS).round().astype(int))
    return {
        "seconds": curve.seconds[steps],
        "samples": curve.samples[steps],
        "accuracy": _smooth(curve.accuracy)[steps],
        "total_batch": curve.total_batch,
        "noise_scale": curve.noise_scale,
        "gain": curve.gain,
    }


def draw_convergence(figure: Figure, numbers: Numbers) -> None:
    """Draw batches over epochs, accuracy over samples and over time, and times to an accuracy."""
    (batches, samples), (times, bars) = figure.subplots(2, 2)
    for number, (name, (_, colour, label)) in enumerate(METHODS.items()):
        curve = numbers["curves"][name]
        look: dict[str, Any] = {"color": colour, "label": label}
        batches.plot(range(1, len(curve["total_batch"]) + 1), curve["total_batch"], **look)
        for axes, key in ((samples, "samples"), (times, "seconds")):
            axes.plot(curve[key], curve["accuracy"], lw=1.2, **look)
        of_target = zip(numbers["median_seconds"][name], numbers["seconds"][name], strict=True)
        even = numbers["median_seconds"]["even"]
        for place, (median, found) in enumerate(of_target):
            if median is None or even[place] is None:
                continue  # not reached
            x = place + 0.2 * (number - 1.5)
            bars.bar(x, median / even[place], 0.18, color=colour)
            dots = [one / even[place] for one in found if one is not None]
            bars.plot([x] * len(dots), dots, "o", ms=2.5, color="black")
    batches.plot(
        range(1, len(numbers["curves"]["cannikin"]["noise_scale"]) + 1),
        numbers["curves"]["cannikin"]["noise_scale"],
        color=BLUE,
        ls="dotted",
        lw=1,
        label="noise scale, Cannikin",
    )
    batches.set_yscale("log", base=2)
    batches.yaxis.set_major_formatter("{x:g}")
    batches.set(xlabel="epoch", ylabel="total batch", title="Fig. 5a")
    batches.legend(ncols=2)
    samples.set(xlabel="samples", title="Fig. 5b, c")
    times.set(xlabel="seconds on cluster B", title="Fig. 7")
    for axes in (samples, times):
        axes.set_ylabel("accuracy")
        axes.set_ylim(0.7, 1)
    samples.legend(loc="lower right")
    bars.set_xticks(range(len(numbers["targets"])), [f"{one:.0%}" for one in numbers["targets"]])
    bars.set(
        xlabel="accuracy that is reached",
        ylabel="time / that of an even split",
        title="Fig. 8: medians, and each run",
    )
    for axes in (batches, samples, times, bars):
        axes.grid()
