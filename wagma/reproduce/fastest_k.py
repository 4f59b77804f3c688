"""Adaptive fastest-k SGD (Kas Hanna et al., 2022): its bounds, and its simulations.

V-A is as printed. V-B trains on scikit-learn's digits instead of MNIST, with m = 80 images (the
caption of Fig. 5 says 60), and is averaged over several draws of the response times.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from wagma.report.style import AMBER, BLUE, GREEN, INK, PURPLE, SKY, VERMILION
from wagma.reproduce.digits import CLASSES, load
from wagma.reproduce.picture import Numbers, Picture, logarithmic
from wagma.theory import fastest_k
from wagma.theory.checks import Floats, Ints
from wagma.theory.order_statistics import exponential_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEEDS = ("sklearn",)


COLOURS = (VERMILION, AMBER, GREEN, PURPLE, SKY)
ADAPTIVE = {"color": BLUE, "lw": 2.2}
POINTS = 220  # of a curve


# ---- Figs. 1 and 2: the bound of Example 1 -------------------------------------------------------

# The mean response time is 1/5: where lambda = 1/5 is printed, all times are 25 times as long.
EXAMPLE = {"eta": 0.001, "L": 2.0, "sigma2": 10.0, "c": 1.0, "s": 10, "gap": 100.0}
WORKERS, MEAN = 5, 1 / 5
LAST = 7500.0


def _example(rng: np.random.Generator, quick: bool) -> Numbers:
    """Return the bounds of each k and of the adaptive policy, over time."""
    del rng, quick
    from scipy import stats

    mu = fastest_k.mean_times(WORKERS, stats.expon(scale=MEAN))
    constants: dict[str, Any] = EXAMPLE | {"mean_times": mu}
    times = np.linspace(0, LAST, 500)
    switches = fastest_k.switch_times(**constants)
    return {
        "times": times,
        "bounds": [fastest_k.error_bound(times, k, **constants) for k in range(1, WORKERS + 1)],
        "adaptive_bound": _adaptive_bound(times, switches, constants),
        "best_fixed_k_changes_at": fastest_k.fixed_k_crossings(**constants),
        "adaptive_k_changes_at": switches,
    }


def _adaptive_bound(times: Floats, switches: Floats, constants: dict[str, Any]) -> Floats:
    """Return the bound of the policy that switches at these times: Lemma 1 anew after each."""
    edges = [0.0, *switches, np.inf]
    bound, error = np.empty(len(times)), constants["gap"]
    for k in range(1, WORKERS + 1):
        begin, end = edges[k - 1 : k + 1]
        within = (times >= begin) & (times < end)
        now = constants | {"gap": error}
        bound[within] = fastest_k.error_bound(times[within] - begin, k, **now)
        if k < WORKERS:
            error = float(fastest_k.error_bound(end - begin, k, **now))
    return bound


def _draw_example(figure: Figure, numbers: Numbers) -> None:
    left, right = figure.subplots(1, 2)
    for k, (bound, colour) in enumerate(zip(numbers["bounds"], COLOURS, strict=True), 1):
        left.plot(numbers["times"], bound, color=colour, lw=1.3, label=f"k = {k}")
    left.plot(numbers["times"], numbers["adaptive_bound"], label="adaptive", **ADAPTIVE)
    left.set_yscale("log")
    logarithmic(left.yaxis)
    left.set(ylabel="bound of the error", title="Fig. 1: Lemma 1")
    left.legend(ncols=2)
    for key, label, look in (
        ("best_fixed_k_changes_at", "best fixed k", {"color": INK, "ls": "dashed", "lw": 1.4}),
        ("adaptive_k_changes_at", "adaptive k (Theorem 1)", ADAPTIVE),
    ):
        edges = [0.0, *numbers[key], LAST]
        right.stairs(range(1, WORKERS + 1), edges, baseline=None, label=label, **look)
        # The first and the last change, beside their steps: of the adaptive k to the left.
        side = -1 if key.startswith("adaptive") else 1
        for place, number in ((1.5, numbers[key][0]), (WORKERS - 0.5, numbers[key][-1])):
            right.annotate(
                f"{number:.1f}",
                (number, place),
                xytext=(5 * side, 0),
                textcoords="offset points",
                ha="right" if side < 0 else "left",
                va="center",
                fontsize=8,
            )
    right.set_yticks(range(1, WORKERS + 1))
    right.set(ylabel="k", title="Fig. 2: the k of the lowest bound")
    right.legend(loc="lower right", bbox_to_anchor=(1, 0.05))
    for axes in (left, right):
        axes.set_xlabel("time")
        axes.grid()


# ---- Figs. 3 to 6: simulations -------------------------------------------------------------------


def _binned(run: fastest_k.FastestKRun, last: float, points: int) -> dict[str, Floats]:
    """Return a run in intervals of equal length: their ends, and what was reached in each.

    The error of an interval is the geometric mean of those of its iterations. An interval in which
    none ends has the error before it: the model stays as it is. Before the first iteration the
    error is not known: NaN. The run must last until `last`.
    """
    edges = np.linspace(0, last, points + 1)
    places = np.searchsorted(run.times, edges)
    if places[-1] == len(run.times):
        raise ValueError(f"the run ends at {run.times[-1]:g}, {last:g} is needed: simulate more")
    logs, errors = np.log(run.errors), np.full(points, np.nan)
    for i, (first, after) in enumerate(pairwise(places)):
        if after > 0:
            errors[i] = np.exp(logs[min(first, after - 1) : after].mean())
    downloads, uploads = (np.append(0.0, sent)[places[1:]] for sent in (run.downloads, run.uploads))
    return {
        "times": edges[1:],
        "errors": errors,
        "downloads": downloads,
        "communicated": downloads + uploads,
    }


def _steps(k: int, workers: int, last: float, mean: float = 1.0) -> int:
    """Return more than the iterations that waiting for k takes until then."""
    return int(1.05 * last / exponential_mean(mean, k, workers)) + 100


def _curve(runs: list[fastest_k.FastestKRun], last: float, points: int) -> dict[str, Any]:
    """Return the mean of several runs, and when k changed in the first one.

    It begins with the first interval before whose end each run has made an iteration.
    """
    binned = [_binned(run, last, points) for run in runs]
    unknown = max(int(np.isnan(each["errors"]).sum()) for each in binned)
    curve: dict[str, Any] = {
        key: np.mean([each[key][unknown:] for each in binned], axis=0) for key in binned[0]
    }
    changes = np.flatnonzero(np.diff(runs[0].ks)) + 1
    curve["k"] = runs[0].ks[[0, *changes]]
    curve["since"] = [0.0, *runs[0].times[changes - 1]]
    curve["lowest"] = float(curve["errors"].min())
    curve["at_the_end"] = float(np.median(curve["errors"][-max(1, points // 10) :]))
    return curve


def _reached(curves: dict[str, Any], last: float) -> dict[str, Any]:
    """Return what each curve needs for the error at which the largest fixed k ends."""
    target = 1.1 * list(curves.values())[-2]["at_the_end"]
    needed: dict[str, Any] = {"error": target, "until": last}
    for name, curve in curves.items():
        first = np.flatnonzero(curve["errors"] <= target)
        needed[name] = {
            key: curve[key][first[0]] if first.size else None
            for key in ("times", "downloads", "communicated")
        }
    return needed


REGRESSION_LAST = 7000.0


def _regression(rng: np.random.Generator, quick: bool) -> Numbers:
    """Return the curves of V-A."""
    X = rng.integers(1, 11, (2000, 100)).astype(float)
    y = X @ rng.integers(1, 101, 100) + rng.standard_normal(2000)
    last = REGRESSION_LAST / (4 if quick else 1)

    def run(k: int, **policy: Any) -> dict[str, Any]:
        # An adaptive k only grows, and needs fewer steps than this.
        steps = _steps(k, 50, last)
        return _curve(
            [fastest_k.simulate(X, y, 50, k, eta=5e-4, steps=steps, rng=rng, **policy)],
            last,
            POINTS,
        )

    curves = {f"k = {k}": run(k) for k in (10, 20, 30, 40)}
    curves["adaptive"] = run(10, step=10, thresh=10, burnin=200, k_max=40)
    return {"curves": curves, "needed": _reached(curves, last)}


IMAGES, DIGITS_WORKERS, RESPONSE = 80, 20, 50.0
RATE, REGULARIZER = 0.05, 0.01
DIGITS_LAST = 6000.0


def _digits(rng: np.random.Generator, quick: bool) -> Numbers:
    """Return the curves of V-B: ten logistic regressions, one for each digit."""
    images, labels = load()
    chosen = rng.permutation(len(images))[:IMAGES]
    X, targets = images[chosen], np.eye(CLASSES)[labels[chosen]]
    of_worker = np.arange(IMAGES).reshape(DIGITS_WORKERS, -1)

    def loss(weights: Floats, workers: Ints) -> tuple[Floats, float]:
        off = X @ weights
        rows = of_worker[workers].ravel()
        shares = 1 / (1 + np.exp(-off[rows]))
        gradient = X[rows].T @ (shares - targets[rows]) / len(rows)
        gradient[:-1] += REGULARIZER * weights[:-1]  # the bias is not regularized
        # log(1 + exp(-z)) of the digit, log(1 + exp(z)) of others; large z overflow otherwise.
        return gradient, float(np.logaddexp(0, np.where(targets > 0, -off, off)).mean())

    start = np.zeros((X.shape[1], CLASSES))
    last, runs = DIGITS_LAST / (4 if quick else 1), 2 if quick else 10

    def run(k: int, adaptive: bool = False) -> dict[str, Any]:
        found = []
        for _ in range(runs):
            policy = None
            if adaptive:
                policy = fastest_k.AdaptiveK(k, DIGITS_WORKERS, 1, 20, 30, 8, "double")
            found.append(
                fastest_k.simulate_loss(
                    *(loss, start, DIGITS_WORKERS, k),
                    eta=RATE,
                    steps=_steps(k, DIGITS_WORKERS, last, RESPONSE),
                    rng=rng,
                    policy=policy,
                    mean_time=RESPONSE,
                )
            )
        return _curve(found, last, 100)

    curves = {f"k = {k}": run(k) for k in (2, 4, 8)}
    curves["adaptive"] = run(2, adaptive=True)
    return {"curves": curves, "needed": _reached(curves, last)}


def _draw_simulation(
    figure: Figure, numbers: Numbers, names: tuple[str, str], error: str, fine: bool = False
) -> None:
    left, middle, right = figure.subplots(1, 3)
    curves = numbers["curves"]
    for (name, curve), colour in zip(
        curves.items(), (*COLOURS[: len(curves) - 1], BLUE), strict=True
    ):
        look: dict[str, Any] = ADAPTIVE if name == "adaptive" else {"color": colour, "lw": 1.2}
        left.plot(curve["times"], curve["errors"], label=name, **look)
        lowest = np.minimum.accumulate(curve["errors"])
        middle.plot(lowest, curve["downloads"], label=name, **look)
        right.plot(lowest, curve["communicated"], label=name, **look)
        if name == "adaptive":
            for k, since in list(zip(curve["k"], curve["since"], strict=True))[1:]:
                left.axvline(since, color=BLUE, ls="dotted", lw=1)
                left.annotate(
                    f" k = {k}",
                    (since, 0.98 - 0.05 * list(curve["k"]).index(k)),
                    xycoords=("data", "axes fraction"),
                    color=BLUE,
                    va="top",
                    fontsize=8,
                )
    left.set(title=f"{names[0]}: error over time", xlabel="time", ylabel=error, yscale="log")
    logarithmic(left.yaxis, fine=fine)
    left.legend(
        loc="upper right", bbox_to_anchor=(1, 0.85), frameon=True, edgecolor="none", framealpha=0.9
    )
    for axes, title in ((middle, "downloads"), (right, "uploads and downloads")):
        axes.set(
            title=f"{names[1]}: {title}",
            xlabel=error,
            ylabel="d-vectors until this error",
            xscale="log",
        )
        logarithmic(axes.xaxis, fine=fine)
        axes.invert_xaxis()
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
    for axes in (left, middle, right):
        axes.grid()


def _draw_regression(figure: Figure, numbers: Numbers) -> None:
    _draw_simulation(figure, numbers, ("Fig. 3", "Fig. 4"), "F(w) - F*")


def _draw_digits(figure: Figure, numbers: Numbers) -> None:
    _draw_simulation(figure, numbers, ("Fig. 5", "Fig. 6"), "mean log loss", fine=True)


PICTURES = (
    Picture(
        "fig1-2",
        "Figs. 1 and 2: Example 1, five workers whose mean response time is 1/5",
        (10.5, 4.2),
        _example,
        _draw_example,
    ),
    Picture(
        "fig3-4",
        "Figs. 3 and 4: linear regression (V-A), 50 workers",
        (13, 4.4),
        _regression,
        _draw_regression,
    ),
    Picture(
        "fig5-6",
        "Figs. 5 and 6: logistic regression (V-B) on scikit-learn's digits, 20 workers",
        (13, 4.4),
        _digits,
        _draw_digits,
    ),
)
