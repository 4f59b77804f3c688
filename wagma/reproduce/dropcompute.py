"""Scale graphs and speed-ups of DropCompute (Giladi et al., 2023), simulated.

Times of micro-batches are drawn for every worker, micro-batch and step. A threshold is chosen from
the first steps (`choose_threshold`) and then judged by other ones, in two ways:

- *stopped* at the threshold, as (6) assumes: a worker drops the micro-batch that it is in;
- *tested* between micro-batches: a worker finishes it, and the gradient counts.

What the paper does not say is chosen here: communication takes no time, and a micro-batch takes
0.45 s without noise in all figures, as in Figs. 13 and 14.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wagma.report.style import AMBER, BLUE, GREEN, INK, PURPLE, SKY, VERMILION
from wagma.reproduce.picture import Numbers, Picture
from wagma.theory.checks import Floats
from wagma.theory.dropcompute import (
    choose_threshold,
    delays,
    effective_speedup,
    expected_step_time,
    optimal_threshold,
    slowdown_ratio,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

BASE_S = 0.45  # of a micro-batch, without noise
MICRO_BATCHES = 12
CALIBRATION_STEPS = 10
DRAWS = 60_000  # workers times steps by which a threshold is judged, about
FEWEST_STEPS = 60
RATIO_WORKERS = 770  # with which the paper's E[T] / E[T_i] come out
NATURAL = 0.1  # deviation over mean of a micro-batch where no noise is added


# ---- simulation ----------------------------------------------------------------------------------


def simulate(calibration: Floats, times: Floats, *, preempt: bool) -> dict[str, float]:
    """Choose a threshold from some steps, and judge it by others.

    Args:
        calibration: times of micro-batches, [steps, workers, M].
        times: those of the steps that are judged, [steps, workers, M].
        preempt: whether workers stop at the threshold, or test it between micro-batches.

    Returns:
        throughput: finished micro-batches of all workers per second.
        threshold: which was chosen, in seconds; math.inf: none.
        predicted: the speed-up that the choice expects.
        drop_rate: share of the micro-batches that were dropped.
    """
    choice = choose_threshold(calibration, np.zeros(len(calibration)), preempt=preempt)
    ends = times.cumsum(axis=2)
    if preempt:
        counted = ends < choice.threshold
        seconds = np.minimum(ends[:, :, -1].max(axis=1), choice.threshold)
    else:
        counted = (ends - times) < choice.threshold
        seconds = np.where(counted, ends, 0.0).max(axis=(1, 2))
    finished = np.count_nonzero(counted)
    return {
        "throughput": finished / seconds.sum(),
        "threshold": choice.threshold,
        "predicted": choice.speedup,
        "drop_rate": 1 - finished / times.size,
    }


def _scale(
    draw: Draw, workers: Sequence[int], rng: np.random.Generator, quick: bool
) -> dict[str, Any]:
    """Return throughputs over the number of workers."""
    baseline, linear = [], []
    ways: dict[str, list[dict[str, float]]] = {"stopped": [], "tested": []}
    for count in workers:
        steps = max(FEWEST_STEPS, DRAWS // count) // (10 if quick else 1)
        times = draw(rng, (CALIBRATION_STEPS + steps, count, MICRO_BATCHES))
        calibration, judged = times[:CALIBRATION_STEPS], times[CALIBRATION_STEPS:]
        own = judged.sum(axis=2)
        linear.append(count * MICRO_BATCHES / own.mean())
        baseline.append(count * MICRO_BATCHES / own.max(axis=1).mean())
        for way, found in ways.items():
            found.append(simulate(calibration, judged, preempt=way == "stopped"))
    columns: dict[str, Any] = {
        way: {key: [each[key] for each in found] for key in found[0]} for way, found in ways.items()
    }
    for column in columns.values():
        column["speedup"] = np.array(column["throughput"]) / baseline
    return {"workers": list(workers), "linear": linear, "baseline": baseline, **columns}


def _theory(mean: float, deviation: float, workers: Sequence[int]) -> dict[str, Any]:
    """Return the same by (4) and (11)."""
    arguments = [(mean, deviation, MICRO_BATCHES, count) for count in workers]
    steps = [expected_step_time(*each) for each in arguments]
    baseline = [MICRO_BATCHES * n / step for n, step in zip(workers, steps, strict=True)]
    best = [optimal_threshold(*each) for each in arguments]
    gains = [effective_speedup(tau, *each) for tau, each in zip(best, arguments, strict=True)]
    return {
        "workers": list(workers),
        "linear": [count / mean for count in workers],
        "baseline": baseline,
        "stopped": {
            "throughput": [one * gain for one, gain in zip(baseline, gains, strict=True)],
            "threshold": best,
            "speedup": gains,
        },
    }


def _with_delays(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw times of B.1's simulated environment."""
    return BASE_S + delays(BASE_S, shape, rng)


def _natural(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw normal times."""
    return np.maximum(rng.normal(BASE_S, NATURAL * BASE_S, shape), 0.0)


# ---- Fig. 1: throughput over workers -------------------------------------------------------------


def _fig1(rng: np.random.Generator, quick: bool) -> Numbers:
    near = [8, 16, 32, 64, 112, 160, 200][:: 3 if quick else 1]
    far = [200, 512, 1024, 1536, 2048][: 2 if quick else None]
    sample = _with_delays(rng, (200_000,))
    return {
        "near": _scale(_with_delays, near, rng, quick),
        "far": _scale(_with_delays, far, rng, quick),
        "near_theory": _theory(float(sample.mean()), float(sample.std()), near),
        "far_theory": _theory(float(sample.mean()), float(sample.std()), far),
    }


def _draw_fig1(figure: Figure, numbers: Numbers) -> None:
    for axes, name in zip(figure.subplots(1, 2), ("near", "far"), strict=True):
        _draw_scale(axes, numbers[name])
        theory = numbers[f"{name}_theory"]
        look = {"color": AMBER, "ls": (0, (1.2, 1.4))}
        axes.plot(theory["workers"], theory["baseline"], label="baseline by (4)", **look)
        look["color"] = GREEN
        axes.plot(
            theory["workers"], theory["stopped"]["throughput"], label="DropCompute by (11)", **look
        )
        axes.set_title(f"up to {numbers[name]['workers'][-1]:,} workers")
        axes.legend()


def _draw_scale(axes: Axes, scale: dict[str, Any]) -> None:
    """Draw the lines of a scale graph."""
    workers = scale["workers"]
    axes.plot(workers, scale["linear"], color=INK, ls="dashed", lw=1, label="linear scaling")
    label = "DropCompute, stopped at the threshold"
    axes.plot(workers, scale["stopped"]["throughput"], color=BLUE, marker="o", label=label)
    if "tested" in scale:
        label = "DropCompute, tested between micro-batches"
        axes.plot(workers, scale["tested"]["throughput"], color=SKY, marker="s", label=label)
    axes.plot(workers, scale["baseline"], color=VERMILION, marker="D", label="baseline")
    axes.set(xlabel="workers", ylabel="micro-batches per second", xlim=(0, None), ylim=(0, None))
    axes.grid()


# ---- Fig. 3: speed-up over the threshold ---------------------------------------------------------


def _fig3(rng: np.random.Generator, quick: bool) -> Numbers:
    shape = (10 if quick else 100, 64, MICRO_BATCHES)
    return {"normal": _curves(_natural(rng, shape)), "delays": _curves(_with_delays(rng, shape))}


def _curves(times: Floats) -> dict[str, Any]:
    """Return speed-ups over thresholds: simulated, by (11), and by (11) given E[T]."""
    steps, workers, count = times.shape
    slowest = times.sum(axis=2).max(axis=1)
    taus = np.linspace(0.5 * count * times.mean(), 1.02 * slowest.max(), 240)
    simulated = choose_threshold(times, np.zeros(steps), taus)
    statistics = (float(times.mean()), float(times.std()), count, workers)
    step = float(slowest.mean())
    best = choose_threshold(times, np.zeros(steps))
    return {
        "thresholds": taus,
        "simulation": simulated.speedups,
        "analytical": effective_speedup(taus, *statistics),
        "analytical_given_step_time": effective_speedup(taus, *statistics, step_time=step),
        "completion_rate": 1 - simulated.drop_rates,
        "step_speedup": [float((slowest / np.minimum(slowest, tau)).mean()) for tau in taus],
        "step_time": step,
        "step_time_by_theory": expected_step_time(*statistics),
        "chosen": best.threshold,
        "speedup": best.speedup,
        "drop_rate": best.drop_rate,
        "optimal_by_theory": optimal_threshold(*statistics),
    }


def _draw_fig3(figure: Figure, numbers: Numbers) -> None:
    normal, noisy, choice = figure.subplots(1, 3)
    for axes, name, title in (
        (normal, "normal", "(a) normal times"),
        (noisy, "delays", "(b) simulated delays"),
    ):
        curves = numbers[name]
        for key, label, colour, dashes in (
            ("simulation", "simulation", BLUE, "solid"),
            ("analytical", "analytical", VERMILION, (0, (5, 2))),
            ("analytical_given_step_time", "analytical given E[T]", GREEN, (0, (1.2, 1.4))),
        ):
            axes.plot(curves["thresholds"], curves[key], color=colour, ls=dashes, label=label)
        axes.set(ylabel="effective speed-up", title=title)
    curves = numbers["delays"]
    for key, label, colour in (
        ("simulation", "effective speed-up", BLUE),
        ("completion_rate", "completion rate", PURPLE),
        ("step_speedup", "speed-up of a step", AMBER),
    ):
        choice.plot(curves["thresholds"], curves[key], color=colour, label=label)
    label = f"chosen: {curves['chosen']:.2f} s, {curves['speedup']:.2f}x"
    choice.axvline(curves["chosen"], color=INK, ls="dashed", lw=1, label=label)
    choice.set(title="(c) the choice, with simulated delays", ylabel="factor, or share")
    for axes in (normal, noisy, choice):
        axes.set_xlabel("threshold, s")
        axes.grid()
        axes.legend()


# ---- Fig. 4: speed-up over the drop rate ---------------------------------------------------------


def _fig4(rng: np.random.Generator, quick: bool) -> Numbers:
    steps = 5 if quick else 60
    return {
        "workers": {n: _tradeoff(_natural(rng, (steps, n, 32))) for n in (16, 32, 64, 112)},
        "micro_batches": {m: _tradeoff(_natural(rng, (steps, 112, m))) for m in (8, 16, 32, 64)},
    }


def _tradeoff(times: Floats) -> dict[str, Any]:
    ends = times.sum(axis=2)
    taus = np.linspace(0.9 * ends.mean(), ends.max(), 160)
    choice = choose_threshold(times, np.zeros(len(times)), taus)
    best = int(np.argmax(choice.speedups))
    return {
        "drop_rates": choice.drop_rates,
        "speedups": choice.speedups,
        "best_drop_rate": choice.drop_rates[best],
        "best_speedup": choice.speedups[best],
    }


def _draw_fig4(figure: Figure, numbers: Numbers) -> None:
    both = figure.subplots(1, 2, sharey=True)
    for axes, key, title, label in (
        (both[0], "workers", "32 micro-batches", "{} workers"),
        (both[1], "micro_batches", "112 workers", "{} micro-batches"),
    ):
        for (count, curve), colour in zip(
            numbers[key].items(), (AMBER, GREEN, SKY, BLUE), strict=True
        ):
            percent = 100 * np.array(curve["drop_rates"])
            axes.plot(percent, curve["speedups"], color=colour, label=label.format(count))
        axes.axhline(1, color=INK, ls="dashed", lw=1)
        axes.set(title=title, xlabel="drop rate, %", ylabel="effective speed-up")
        axes.grid()
        axes.legend(loc="lower right", ncols=2)
    both[0].set_ylim(bottom=0.99)  # leaves room for the legends


# ---- Figs. 13 and 14: kinds of noise, and its variance -------------------------------------------

MEAN_S, VARIANCE = 0.225, 0.05
# The paper's E[T] / E[T_i], by variance.
PRINTED_14 = {0.05: 1.496, 0.1: 1.933, 0.15: 2.394, 0.2: 2.773, 0.25: 3.043, 0.3: 3.4}


def _lognormal(variance: float) -> Any:
    from scipy import stats

    sigma = math.sqrt(math.log1p(variance / MEAN_S**2))
    return stats.lognorm(sigma, scale=MEAN_S * math.exp(-(sigma**2) / 2))


def _noises() -> dict[str, tuple[Any, float]]:
    """Return noises of mean 0.225 s and variance 0.05 s^2, with Fig. 13's E[T] / E[T_i]."""
    from scipy import stats

    return {
        "lognormal": (_lognormal(VARIANCE), 1.496),
        "normal": (stats.norm(0.225, 0.22), 1.302),
        "bernoulli": (stats.rv_discrete(values=([0, 0.45], [0.5, 0.5]))(), 1.283),
        "exponential": (stats.expon(scale=1 / 4.47), 1.386),
        "gamma": (stats.gamma(1, scale=1 / 4.5), 1.39),
    }


def _noisy(distribution: Any, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw times with this noise; a time below 0 is 0."""
    noise = distribution.rvs(shape, random_state=rng)
    times: Floats = np.maximum(BASE_S + noise, 0.0)
    return times


def _panel(
    distribution: Any, printed: float, workers: Sequence[int], rng: np.random.Generator, quick: bool
) -> dict[str, Any]:
    return {
        **_scale(partial(_noisy, distribution), workers, rng, quick),
        "ratio": slowdown_ratio(distribution, MICRO_BATCHES, RATIO_WORKERS, BASE_S),
        "ratio_of_the_paper": printed,
    }


def _workers(quick: bool) -> list[int]:
    return [16, 64] if quick else [16, 128, 256, 512, 1024, 1536, 2048]


def _fig13(rng: np.random.Generator, quick: bool) -> Numbers:
    workers = _workers(quick)
    panels = {
        name: _panel(noise, printed, workers, rng, quick)
        for name, (noise, printed) in _noises().items()
    }
    mean, deviation = BASE_S + MEAN_S, math.sqrt(VARIANCE)
    return {**panels, "by (4) and (11)": _theory(mean, deviation, workers)}


def _fig14(rng: np.random.Generator, quick: bool) -> Numbers:
    workers = _workers(quick)
    return {
        f"lognormal, variance {variance}": _panel(
            _lognormal(variance), printed, workers, rng, quick
        )
        for variance, printed in PRINTED_14.items()
    }


def _draw_panels(figure: Figure, numbers: Numbers) -> None:
    every = figure.subplots(2, 3, sharex=True).flat
    for axes, letter, (name, panel) in zip(every, "abcdef", numbers.items(), strict=True):
        _draw_scale(axes, panel)
        ratio = ""
        if "ratio" in panel:
            ratio = f"\nE[T]/E[T_i] {panel['ratio']:.3f}, paper {panel['ratio_of_the_paper']:.3f}"
        axes.set_title(f"({letter}) {name}{ratio}")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)


PICTURES = (
    Picture(
        "fig1",
        "Fig. 1: throughput with simulated delays (B.1), 12 micro-batches",
        (11, 4.6),
        _fig1,
        _draw_fig1,
    ),
    Picture(
        "fig3", "Fig. 3: speed-up over the threshold, 64 workers", (12.5, 4.2), _fig3, _draw_fig3
    ),
    Picture(
        "fig4",
        "Fig. 4: speed-up over the drop rate, times vary by 10 % and no noise is added",
        (10, 4.2),
        _fig4,
        _draw_fig4,
    ),
    Picture(
        "fig13",
        "Fig. 13: kinds of noise of mean 0.225 s and variance 0.05, added to 0.45 s",
        (12, 7),
        _fig13,
        _draw_panels,
    ),
    Picture(
        "fig14",
        "Fig. 14: lognormal noise of mean 0.225 s, added to 0.45 s",
        (12, 7),
        _fig14,
        _draw_panels,
    ),
)
