"""From an even start to the best batches (Fig. 9), and the errors of predictions (Sec. 5.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wagma.report.style import AMBER, BLUE, INK, VERMILION
from wagma.reproduce.cannikin.simulated import Clock, follow
from wagma.reproduce.picture import Numbers
from wagma.theory.cannikin import (
    ClusterModel,
    PerformanceLearner,
    batch_time,
    integer_batches,
    make_planner,
)
from wagma.theory.cannikin.clusters import ClusterName, cluster
from wagma.theory.cannikin.planners import Baseline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = 100  # of an epoch


# ---- Fig. 9: epochs until the best batches -------------------------------------------------------

CASES: dict[ClusterName, int] = {
    "A": 128,
    "B": 512,
}  # the paper's total batch, and one for 16 nodes
METHODS: dict[str, Baseline | None] = {"even": "even", "lb-bsp": "lb-bsp", "cannikin": None}
NEAR = 1.03  # of the best time


def find_adaptation(rng: np.random.Generator, quick: bool) -> Numbers:
    """Return the seconds of a step, epoch by epoch: medians of several runs."""
    return {name: _adapt(name, total, rng, quick) for name, total in CASES.items()}


def _adapt(name: ClusterName, total: int, rng: np.random.Generator, quick: bool) -> Numbers:
    model = cluster(name, batch=total)
    best = integer_batches(model, total).time
    runs, epochs = (3, 12) if quick else (15, 40)
    found: dict[str, Any] = {"total_batch": total, "best": best, "methods": {}}
    for method, baseline in METHODS.items():
        times, measured = [], []
        for _ in range(runs):
            planner = make_planner(len(model.nodes), total, baseline=baseline)
            run = follow(planner, Clock(model, rng), epochs, STEPS)
            times.append(run.times)
            measured.append(run.measured)
        first = [_first_near(run, best) for run in times]
        own = [_first_near(run, min(run)) for run in times]
        found["methods"][method] = {
            "times": np.median(times, axis=0),
            "slowest_run": np.max(times, axis=0),
            "measured": np.median(measured, axis=0),
            "least": np.median(times, axis=0).min(),
            # Infinite where a run never comes so far.
            "first_epoch_near_the_best": float(np.median(first)),
            "last_first_epoch_near_the_best": max(first),
            "first_epoch_near_its_own_best": float(np.median(own)),
        }
    return found


def _first_near(times: list[float], best: float) -> float:
    """Return the epoch, counted from 1, in which the time of a step is near the best one."""
    return next((float(i) for i, time in enumerate(times, 1) if time <= NEAR * best), np.inf)


def draw_adaptation(figure: Figure, numbers: Numbers) -> None:
    """Draw times over epochs."""
    for axes, (name, case) in zip(figure.subplots(1, 2), numbers.items(), strict=True):
        for (method, found), (colour, label) in zip(
            case["methods"].items(),
            ((VERMILION, "even split"), (AMBER, "LB-BSP"), (BLUE, "Cannikin")),
            strict=True,
        ):
            epochs = range(1, len(found["times"]) + 1)
            axes.plot(epochs, found["times"], color=colour, marker="o", ms=3, label=label)
            if method == "cannikin":
                axes.plot(
                    *(epochs, found["slowest_run"]),
                    color=colour,
                    ls="dotted",
                    lw=1,
                    label="Cannikin, slowest run",
                )
        axes.axhline(case["best"], color=INK, ls="dashed", lw=1, label="OptPerf")
        axes.set(
            title=f"cluster {name}, {case['total_batch']} samples",
            xlabel="epoch",
            ylabel="seconds per step",
        )
        axes.set_ylim(0, 1.1 * case["methods"]["even"]["times"][0])
        axes.legend()
        axes.grid()


# ---- Sec. 5.3: prediction ------------------------------------------------------------------------

TOTALS = (32, 64, 128, 256, 512, 1024)
FROM_EPOCH, LAST_EPOCH = 3, 8
LOOKED_AT = 20  # epochs with the best batches
KINDS = ("inverse variances", "plain mean")


def find_prediction(rng: np.random.Generator, quick: bool) -> Numbers:
    """Return by how much the predicted time of the best step is wrong, on cluster A.

    The prediction is compared with what steps of the best batches take, from the third epoch on, in
    runs with one total batch each; once with gamma by inverse variances, once by the plain mean.
    """
    totals = TOTALS[1::3] if quick else TOTALS
    runs = 4 if quick else 40
    model = cluster("A")
    found: dict[str, Any] = {kind: {"median": [], "largest": []} for kind in KINDS}
    measured, slower = [], []
    for total in totals:
        best = integer_batches(model, total)
        clock = Clock(model, rng)
        took = [clock.epoch(best.batches.tolist(), STEPS).seconds.mean() for _ in range(LOOKED_AT)]
        reached = float(np.mean(took))
        errors: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(runs):
            for epoch in _predict(model, total, rng):
                for kind in KINDS:
                    errors[kind].append(abs(epoch[kind] / reached - 1))
                measured.append(abs(epoch[KINDS[0]] / epoch["measured"] - 1))
                slower.append(epoch["time"] / best.time - 1)
        for kind in KINDS:
            found[kind]["median"].append(float(np.median(errors[kind])))
            found[kind]["largest"].append(max(errors[kind]))
    return {
        "total_batch": totals,
        "errors": found,
        "largest": {kind: max(found[kind]["largest"]) for kind in KINDS},
        "median": {kind: max(found[kind]["median"]) for kind in KINDS},
        "largest_against_measured": max(measured),
        "median_against_measured": float(np.median(measured)),
        "plan_slower_than_best": max(slower),
    }


def _predict(
    model: ClusterModel, total: int, rng: np.random.Generator
) -> Iterator[dict[str, float]]:
    """Yield, for each epoch, predictions of its step, and its time with errors and without."""
    clock, nodes = Clock(model, rng), len(model.nodes)
    planner, learner = (
        make_planner(nodes, total),
        PerformanceLearner(nodes, min_batches=[1] * nodes),
    )
    plan, gammas, plain = planner.first(), [], None
    for epoch in range(1, LAST_EPOCH + 1):
        found = clock.epoch(plan.batches, STEPS)
        if epoch >= FROM_EPOCH and plan.predicted is not None and plain is not None:
            yield {
                KINDS[0]: plan.predicted,
                KINDS[1]: integer_batches(plain, total).time,
                "measured": float(found.seconds.mean()),
                "time": batch_time(model, plan.batches),
            }
        plan = planner.next(found.measured)
        learner.load_state_dict(planner.state_dict()["learner"])
        gammas.append(np.mean(found.measured.gammas))
        if not learner.unknown:
            plain = replace(learner.cluster(), gamma=float(np.mean(gammas)))


def draw_prediction(figure: Figure, numbers: Numbers) -> None:
    """Draw errors over total batches."""
    axes = figure.subplots()
    for kind, colour in zip(KINDS, (BLUE, VERMILION), strict=True):
        errors = numbers["errors"][kind]
        for which, dashes in (("largest", "solid"), ("median", "dotted")):
            axes.plot(
                numbers["total_batch"],
                100 * np.array(errors[which]),
                color=colour,
                ls=dashes,
                marker="o",
                label=f"gamma by {kind}: {which}",
            )
    axes.axhline(7, color=INK, ls="dashed", lw=1, label="the paper's largest, 7 %")
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers["total_batch"], map(str, numbers["total_batch"]))
    axes.minorticks_off()
    axes.set(xlabel="total batch", ylabel="error of the predicted OptPerf [%]")
    axes.set_ylim(bottom=0)
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.7))
    axes.grid()
