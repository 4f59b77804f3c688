"""K-sync and K-async SGD (Dutta et al., 2018): run times, bounds, training with stale gradients.

Figs. 8 and 9 train on scikit-learn's digits instead of MNIST. What the paper does not say is chosen
here: Fig. 6 has 8 learners, and the constants of Fig. 7 are below.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from wagma.report.style import AMBER, BLUE, GREEN, INK, PURPLE, VERMILION
from wagma.reproduce.digits import CLASSES, load, softmax
from wagma.reproduce.picture import Numbers, Picture, logarithmic
from wagma.theory import ksync
from wagma.theory.checks import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEEDS = ("sklearn",)


LEARNERS = 8
COLOURS = {"k-sync": VERMILION, "k-batch-sync": AMBER, "k-async": PURPLE, "k-batch-async": BLUE}


def _distributions() -> dict[str, Any]:
    from scipy import stats

    return {
        "exp(1)": stats.expon(),
        "1 + exp(1)": stats.expon(loc=1),
        "Pareto(2, 1)": stats.pareto(2),
    }


# ---- Fig. 5: speed-up ----------------------------------------------------------------------------


def _fig5(rng: np.random.Generator, quick: bool) -> Numbers:
    del rng, quick
    learners = np.arange(1, 21)
    speedups = {
        name: [ksync.speedup_async_over_sync(distribution, count) for count in learners]
        for name, distribution in _distributions().items()
    }
    logs = learners[1:] * np.log(learners[1:])
    return {"learners": learners, "speedups": speedups, "P log P": [None, *logs]}


def _draw_fig5(figure: Figure, numbers: Numbers) -> None:
    axes = figure.subplots()
    looks = zip(numbers["speedups"].items(), (BLUE, GREEN, VERMILION), "osD", strict=True)
    for (name, speedups), colour, marker in looks:
        axes.plot(numbers["learners"], speedups, color=colour, marker=marker, label=name)
    logs = numbers["P log P"][1:]
    axes.plot(numbers["learners"][1:], logs, color=INK, ls="dashed", lw=1, label="P log P")
    axes.set_yscale("log")
    logarithmic(axes.yaxis, fine=True)
    axes.set(xlabel="learners, P", ylabel="synchronous over asynchronous time")
    axes.set_xticks(range(0, 21, 4))
    axes.grid()
    axes.legend()


# ---- Fig. 6: run time ----------------------------------------------------------------------------

ITERATIONS = 2000


def _fig6(rng: np.random.Generator, quick: bool) -> Numbers:
    """Return E[T] over K, and for K-async what one simulation of more updates gives as well."""
    from scipy import stats

    updates = 10_000 if quick else 40_000
    ks = list(range(1, LEARNERS + 1))
    panels: dict[str, Any] = {"ks": ks}
    for name, distribution in (("Pareto(2, 1)", stats.pareto(2)), ("1 + exp(1)", stats.expon(1))):
        panel: dict[str, Any] = {}
        for method in ("k-sync", "k-async", "k-batch-async"):
            found = [
                ksync.simulate(method, distribution, LEARNERS, k, updates, rng).times[-1]
                for k in ks
            ]
            panel[method] = ITERATIONS / updates * np.array(found)
        for method in ("k-sync", "k-batch-async"):
            exact = [ksync.update_time(method, distribution, LEARNERS, k).mean for k in ks]
            panel[f"{method}, exact"] = ITERATIONS * np.array(exact)
        panels[name] = panel
    return panels


def _draw_fig6(figure: Figure, numbers: Numbers) -> None:
    ks = numbers["ks"]
    for axes, name in zip(figure.subplots(1, 2), ("Pareto(2, 1)", "1 + exp(1)"), strict=True):
        panel = numbers[name]
        for method, marker in (("k-sync", "D"), ("k-async", "s"), ("k-batch-async", "o")):
            look: dict[str, Any] = {"color": COLOURS[method], "marker": marker}
            if f"{method}, exact" in panel:
                axes.plot(ks, panel[f"{method}, exact"], color=COLOURS[method], label=method)
                look |= {"ls": "none", "mfc": "white"}
            else:
                look |= {"label": method, "mfc": "white"}
            axes.plot(ks, panel[method], **look)
        axes.set(
            title=f"{name} (markers: simulated)",
            xlabel="K",
            ylabel=f"time of {ITERATIONS:,} iterations",
        )
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.grid()
        axes.legend()


# ---- Fig. 7: bounds ------------------------------------------------------------------------------

CONSTANTS: dict[str, Any] = {"eta": 0.05, "L": 2.0, "sigma2": 1.0, "c": 0.5, "m": 1, "gap": 10.0}
GAMMA = 0.3  # of asynchronous SGD


def _fig7(rng: np.random.Generator, quick: bool) -> Numbers:
    del rng, quick
    times, distribution = np.linspace(0, 1000, 400), _distributions()["exp(1)"]
    curves = {}
    for name, method, k, stale in (
        ("synchronous", "k-sync", LEARNERS, False),
        ("asynchronous", "k-async", 1, True),
    ):
        took = ksync.update_time(method, distribution, LEARNERS, k).mean
        more = {"gamma": GAMMA, "p0": 1 / LEARNERS} if stale else {}
        curves[name] = ksync.error_bound(method, times / took, k=k, **CONSTANTS | more)
    return {"times": times, "curves": curves}


def _draw_fig7(figure: Figure, numbers: Numbers) -> None:
    colours = {"synchronous": VERMILION, "asynchronous": BLUE}
    _draw_over_time(figure, numbers["times"], numbers["curves"], colours, "bound of the error")


def _draw_over_time(
    figure: Figure, times: list[float], curves: Numbers, colours: dict[str, str], ylabel: str
) -> None:
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(times, values, color=colours[name], label=name)
    axes.set(xlabel="time", ylabel=ylabel, yscale="log")
    logarithmic(axes.yaxis, fine=True)
    axes.grid()
    axes.legend()


# ---- Figs. 8 and 9: training ---------------------------------------------------------------------

RATE, REGULARIZER = 0.01, 0.01
POINTS = 60  # of a curve


def train(
    method: str, k: int, times: Floats, rng: np.random.Generator, distribution: Any
) -> Floats:
    """Train softmax regression on digits with a simulated server; return losses at these times.

    Mini-batches have one image. A gradient is that of the version at which its learner began.

    Args:
        method: one of `ksync.METHODS`.
        k: K of `LEARNERS`.
        times: at which the loss is wanted, rising: (n,).
        rng: draws times, images and the first weights.
        distribution: of the time of a mini-batch.

    Returns:
        Mean cross-entropy over all images: (n,).
    """
    images, labels = load()
    targets = np.eye(CLASSES)[labels]
    updates = int(1.1 * times[-1] / ksync.update_time(method, distribution, LEARNERS, k).mean) + 50
    found = ksync.simulate(method, distribution, LEARNERS, k, updates, rng)
    chosen = rng.integers(len(images), size=(updates, k))
    weights = rng.normal(scale=0.01, size=(images.shape[1], CLASSES))
    versions = deque([weights], maxlen=int(found.staleness.max()) + 1)
    losses: list[float] = []
    for i, now in enumerate(found.times):
        while len(losses) < len(times) and times[len(losses)] < now:
            losses.append(_loss(weights, images, targets))
        rows, total = chosen[i], np.zeros_like(weights)
        for row, stale in zip(rows, found.staleness[i], strict=True):
            old = versions[-1 - stale]
            total += np.outer(images[row], softmax(images[row] @ old) - targets[row])
            total[:-1] += 2 * REGULARIZER * old[:-1]
        weights = weights - RATE / k * total
        versions.append(weights)
    return np.array(losses)


def _loss(weights: Floats, images: Floats, targets: Floats) -> float:
    shares = (softmax(images @ weights) * targets).sum(axis=1)
    return float(-np.log(np.maximum(shares, 1e-300)).mean())


def _curves(
    runs: dict[str, tuple[str, int]], last: float, rng: np.random.Generator, quick: bool
) -> Numbers:
    """Return the mean losses of several runs over time."""
    times = np.linspace(0, last, POINTS)
    distribution = _distributions()["exp(1)"]
    count = 1 if quick else 3
    curves = {
        name: np.mean([train(method, k, times, rng, distribution) for _ in range(count)], axis=0)
        for name, (method, k) in runs.items()
    }
    # A median: the loss goes up and down from version to version.
    level = {name: float(np.median(losses[-POINTS // 6 :])) for name, losses in curves.items()}
    return {"times": times, "losses": curves, "at_the_end": level}


def _fig8(rng: np.random.Generator, quick: bool) -> Numbers:
    runs = {
        "synchronous": ("k-sync", LEARNERS),
        "4-batch-async": ("k-batch-async", 4),
        "asynchronous": ("k-async", 1),
    }
    return _curves(runs, 1250.0, rng, quick)


def _fig9(rng: np.random.Generator, quick: bool) -> Numbers:
    runs = {"4-async": ("k-async", 4), "4-batch-async": ("k-batch-async", 4)}
    return _curves(runs, 1250.0, rng, quick)


def _draw_training(figure: Figure, numbers: Numbers) -> None:
    colours = {
        "synchronous": VERMILION,
        "asynchronous": GREEN,
        "4-async": PURPLE,
        "4-batch-async": BLUE,
    }
    ylabel = "mean cross-entropy over all images"
    _draw_over_time(figure, numbers["times"], numbers["losses"], colours, ylabel)


PICTURES = (
    Picture(
        "fig5",
        "Fig. 5: speed-up of asynchronous over synchronous SGD (Theorem 1)",
        (6.4, 4.4),
        _fig5,
        _draw_fig5,
    ),
    Picture("fig6", f"Fig. 6: run time with {LEARNERS} learners", (11, 4.4), _fig6, _draw_fig6),
    Picture(
        "fig7",
        "Fig. 7: bounds of synchronous and asynchronous SGD, the same learning rate",
        (6.4, 4.4),
        _fig7,
        _draw_fig7,
    ),
    Picture(
        "fig8",
        "Fig. 8: softmax regression on scikit-learn's digits, P = 8, times of exp(1)",
        (6.4, 4.4),
        _fig8,
        _draw_training,
    ),
    Picture(
        "fig9",
        "Fig. 9: K-async and K-batch-async on scikit-learn's digits, P = 8, K = 4",
        (6.4, 4.4),
        _fig9,
        _draw_training,
    ),
)
