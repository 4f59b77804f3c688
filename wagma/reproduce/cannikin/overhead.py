"""How long it takes to plan an epoch: Table 5. These numbers are measured, all others simulated."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wagma.data import UnevenBatchSampler
from wagma.report.style import AMBER, BLUE, INK
from wagma.reproduce.cannikin.simulated import Clock
from wagma.reproduce.picture import Numbers, logarithmic
from wagma.theory.cannikin import NoiseScale, make_planner
from wagma.theory.cannikin.clusters import made_cluster, shared_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = (4, 16, 64, 256, 1024)
SAMPLES = 50_000  # of a data set, CIFAR-10's
EPOCHS = 12  # that are planned; the first three are not counted
EPOCH_S = 1.0  # with which the time is compared


def find_overhead(rng: np.random.Generator, quick: bool) -> Numbers:
    """Return the CPU seconds in which a rank plans, and draws the samples of an epoch."""
    nodes = NODES[:2] if quick else NODES
    found: dict[str, Any] = {"nodes": nodes, "planning": [], "drawing": []}
    for count in nodes:
        model = made_cluster(shared_times(count), [24.0] * count, batch=32 * count)
        clock = Clock(model, rng)
        planner = make_planner(count, (4 * count, 64 * count))
        plan, planning, drawing = planner.first(), [], []
        sampler = UnevenBatchSampler(max(SAMPLES, 64 * count), plan.batches, 0, seed=1)
        for epoch in range(EPOCHS):
            measured = clock.epoch(plan.batches, 2).measured
            noise = NoiseScale(1.0, 16.0 * count * (1 + epoch))
            begun = time.thread_time()
            plan = planner.next(replace(measured, noise=noise))
            planned = time.thread_time()
            sampler.set_epoch(epoch)
            sampler.set_batches(plan.batches, from_step=0)
            next(iter(sampler))
            planning.append(planned - begun)
            drawing.append(time.thread_time() - planned)
        found["planning"].append(float(np.median(planning[3:])))
        found["drawing"].append(float(np.median(drawing[3:])))
    of_16 = nodes.index(16)
    found["share_of_an_epoch_of_1_s_with_16"] = found["planning"][of_16] / EPOCH_S
    found["share_with_drawing"] = (found["planning"][of_16] + found["drawing"][of_16]) / EPOCH_S
    return found


def draw_overhead(figure: Figure, numbers: Numbers) -> None:
    """Draw the times over the number of nodes."""
    axes = figure.subplots()
    for key, label, colour in (
        ("planning", "the plan, 32 total batches compared", BLUE),
        ("drawing", f"the order of {SAMPLES:,} samples", AMBER),
    ):
        values = 1000 * np.array(numbers[key])
        axes.plot(numbers["nodes"], values, color=colour, marker="o", label=label)
    axes.axhline(10, color=INK, ls="dashed", lw=1, label="1 % of an epoch of a second")
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers["nodes"], map(str, numbers["nodes"]))
    axes.minorticks_off()
    axes.set_yscale("log")
    logarithmic(axes.yaxis, fine=True)
    axes.set(xlabel="nodes", ylabel="milliseconds of CPU per epoch")
    axes.legend()
    axes.grid()
