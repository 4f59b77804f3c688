"""How long a step takes: Fig. 10, and by how unequal the nodes are (Sec. 6)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from wagma.report.style import AMBER, BLUE, GREEN, INK, VERMILION
from wagma.reproduce.cannikin.simulated import EXACT, Clock, follow
from wagma.reproduce.picture import Numbers
from wagma.theory.cannikin import (
    ClusterModel,
    batch_time,
    initial_batches,
    integer_batches,
    make_planner,
)
from wagma.theory.cannikin.clusters import cluster, made_cluster, shared_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# ---- Fig. 10: by method and total batch ----------------------------------------------------------

# T_o as a share of the step with 512 samples, for models of which less or more is communicated.
OVERLAPS = {"little": 0.1, "medium": 0.3, "much": 0.7}
TOTALS = [32, 64, 128, 256, 512, 1024, 2048]


def find_batch_times(rng: np.random.Generator, quick: bool) -> Numbers:
    """Return the seconds of steps on cluster B, by total batch and method."""
    totals = TOTALS[1::3] if quick else TOTALS
    return {
        "total_batch": totals,
        "communication": {
            name: _by_method(cluster("B", overlap=share), totals, rng)
            for name, share in OVERLAPS.items()
        },
    }


def _by_method(
    model: ClusterModel, totals: list[int], rng: np.random.Generator
) -> dict[str, list[float]]:
    """Return the seconds of a step with each method's best plan, for each total batch."""
    methods = ("even", "lb-bsp", "lb-bsp, adapted", "equal computing", "cannikin")
    found: dict[str, list[float]] = {name: [] for name in methods}
    clock = Clock(model, rng, EXACT)
    nodes, computing = len(model.nodes), replace(model, overlap_time=0.0, last_bucket_time=0.0)
    for total in totals:
        even = follow(make_planner(nodes, total, baseline="even"), clock, 1, 1)
        learned = follow(make_planner(nodes, total), clock, 3, 1)
        found["even"].append(even.times[-1])
        found["cannikin"].append(learned.times[-1])
        # What LB-BSP would come to if it moved single samples.
        equal = integer_batches(computing, total).batches
        found["equal computing"].append(batch_time(model, equal))
        found["lb-bsp"].append(batch_time(model, _settled(clock, total)))
        # LB-BSP divides the new total as the one before, which was smaller by a tenth of the range.
        before = total - (TOTALS[-1] - TOTALS[0]) // 10
        adapted = np.nan
        if before >= nodes:
            shares = np.array(_settled(clock, before))
            adapted = batch_time(model, initial_batches(1 / shares, total))
        found["lb-bsp, adapted"].append(adapted)
    return found


def _settled(clock: Clock, total: int) -> tuple[int, ...]:
    """Return the best of LB-BSP's plans once they only move to and fro."""
    nodes = len(clock.cluster.nodes)
    # Fewer than half of all samples move, 5 in each epoch.
    last = 2 * nodes
    found = follow(make_planner(nodes, total, baseline="lb-bsp"), clock, total // 10 + last, 1)
    best = int(np.argmin(found.times[-last:]))
    return found.plans[-last:][best].batches


def draw_batch_times(figure: Figure, numbers: Numbers) -> None:
    """Draw the times relative to those of an even split."""
    looks = {
        "even": {"color": VERMILION, "marker": "D", "label": "even split"},
        "lb-bsp": {"color": AMBER, "marker": "s", "label": "LB-BSP"},
        "lb-bsp, adapted": {
            "color": AMBER,
            "marker": "^",
            "ls": "dotted",
            "label": "LB-BSP, batch just changed",
        },
        "equal computing": {
            "color": GREEN,
            "ls": "dashed",
            "label": "equal computing times, LB-BSP's aim",
        },
        "cannikin": {"color": BLUE, "marker": "o", "label": "Cannikin"},
    }
    panels = figure.subplots(1, len(numbers["communication"]), sharey=True)
    for axes, (name, times) in zip(panels, numbers["communication"].items(), strict=True):
        even = np.array(times["even"])
        for method, look in looks.items():
            values = np.array([np.nan if one is None else one for one in times[method]])
            axes.plot(numbers["total_batch"], values / even, **look)
        axes.set_xscale("log", base=2)
        axes.set_xticks(numbers["total_batch"], map(str, numbers["total_batch"]))
        axes.minorticks_off()
        axes.set_ylim(0.5, 1.1)
        axes.set(xlabel="total batch", title=f"{name} communication: T_o = {OVERLAPS[name]:g} s")
        axes.grid()
    panels[0].set_ylabel("time of a step / that of an even split")
    panels[0].legend(loc="lower left")


# ---- Sec. 6: by how unequal the nodes are --------------------------------------------------------

SPREADS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
SPREAD_BATCHES = (128, 512, 2048)
_EPOCHS, _STEPS = 6, 100


def find_spread(rng: np.random.Generator, quick: bool) -> Numbers:
    """Return how much faster than an even split Cannikin is on 16 GPUs with shares 1 to 1 / x."""
    spreads = SPREADS[::4] if quick else SPREADS
    found: dict[str, list[float]] = {}
    for total in SPREAD_BATCHES:
        found[str(total)] = gains = []
        for spread in spreads:
            model = made_cluster(shared_times(16, 1 / spread), [24.0] * 16)
            planner = make_planner(16, total)
            run = follow(planner, Clock(model, rng), _EPOCHS, _STEPS)
            gains.append(run.measured[0] / run.measured[-1])
    return {
        "spread": spreads,
        "gain_by_total_batch": found,
        # Only the time per sample counts: the slowest node's against the mean share.
        "limit": [(spread + 1) / 2 for spread in spreads],
    }


def draw_spread(figure: Figure, numbers: Numbers) -> None:
    """Draw gains over spreads."""
    axes = figure.subplots()
    axes.plot(
        numbers["spread"], numbers["limit"], color=INK, ls="dashed", lw=1, label="(x + 1) / 2"
    )
    for (total, gains), colour in zip(
        reversed(numbers["gain_by_total_batch"].items()), (BLUE, GREEN, AMBER), strict=True
    ):
        axes.plot(numbers["spread"], gains, color=colour, marker="o", label=f"{total} samples")
    axes.set(
        xlabel="x: the fastest node / the slowest",
        ylabel="steps per second / those of an even split",
    )
    axes.set_ylim(bottom=0.9)
    axes.legend()
    axes.grid()
