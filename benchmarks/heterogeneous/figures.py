"""What the measured epochs of several methods say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from wagma.report.heterogeneous import FROM, NEAR
from wagma.theory.cannikin import ClusterModel, NodeModel, goodput, opt_perf

from .emulated import factors, scaled
from .settings import Settings

if TYPE_CHECKING:
    from .train import Epoch

Run = dict[str, Any]


def runs(
    settings: Settings,
    nodes: Sequence[NodeModel],
    smallest: int,
    noise_scale: float,
    measured: Mapping[str, Sequence[Epoch]],
) -> list[Run]:
    """Return the figures of each method, for JSON; each has measured one epoch at least.

    `smallest` is the total batch B_0, and `noise_scale` that of the gradients, both in samples.
    """
    found: list[Run] = [
        {
            "method": method,
            "epochs": [
                _epoch(settings, nodes, smallest, noise_scale, number, epoch)
                for number, epoch in enumerate(epochs, 1)
            ],
        }
        for method, epochs in measured.items()
    ]
    even = next((run for run in found if run["method"] == "even"), None)
    for run in found:
        run |= _summary(settings, nodes, run, found)
        run["speedup"] = None
        if even is not None and len(even["epochs"]) == len(run["epochs"]):
            run["speedup"] = _settled(settings, even, "pace") / _settled(settings, run, "pace")
    return found


def _epoch(
    settings: Settings,
    nodes: Sequence[NodeModel],
    smallest: int,
    noise_scale: float,
    number: int,
    epoch: Epoch,
) -> dict[str, Any]:
    """Return an epoch's figures.

    "pace": seconds for the progress of a sample of the smallest total batch; "ideal": seconds
    of the best division on the nodes as they are in this epoch, without communication.
    """
    total = sum(epoch.batches)
    slower = factors(settings.slowdown, len(nodes), number)
    now = tuple(scaled(node, factor) for node, factor in zip(nodes, slower, strict=True))
    error = None if epoch.predicted is None else epoch.predicted / epoch.seconds - 1
    return {
        **asdict(epoch),
        "batches": list(epoch.batches),
        "total_batch": total,
        "prediction_error": error,
        "pace": 1 / goodput(total, epoch.seconds, noise_scale, smallest),
        "ideal": opt_perf(ClusterModel(now, 1.0, 0.0, 0.0), total).time,
    }


def _summary(
    settings: Settings, nodes: Sequence[NodeModel], run: Run, every: Sequence[Run]
) -> dict[str, Any]:
    epochs = run["epochs"]
    starts = [first for first, _ in _phases(settings, len(epochs))]  # which no plan can foresee
    known = [
        abs(epoch["prediction_error"])
        for number, epoch in enumerate(epochs)
        if number >= FROM - 1 and number not in starts and epoch["prediction_error"] is not None
    ]
    last = epochs[-1]
    begun = [epochs[start]["seconds"] for start in starts[1:]]
    slower = factors(settings.slowdown, len(nodes), len(epochs))
    speeds = [factor * (node.q + node.k) for factor, node in zip(slower, nodes, strict=True)]
    share = np.array(last["batches"]) / last["total_batch"]
    return {
        "seconds_best": min(epoch["seconds"] for epoch in epochs[starts[-1] :]),
        "seconds_settled": _settled(settings, run, "seconds"),
        "seconds_slowed": begun,
        "prediction_error_median": float(np.median(known)) if known else None,
        "prediction_error_worst": max(known, default=None),
        "reached": [
            _reached(first, end, run, every) for first, end in _phases(settings, len(epochs))
        ],
        "fastest_share": float(share[int(np.argmin(speeds))]),
        "slowest_share": float(share[int(np.argmax(speeds))]),
        "planning": fmean(epoch["planning"] for epoch in epochs),
        "planning_cpu": fmean(epoch["planning_cpu"] for epoch in epochs),
        "planning_share": fmean(epoch["planning"] / epoch["total"] for epoch in epochs),
    }


def _settled(settings: Settings, run: Run, figure: str) -> float:
    """Return the median since the last slowdown, from the third epoch on; or the last epoch's."""
    epochs = run["epochs"]
    first, _ = _phases(settings, len(epochs))[-1]
    return float(median(epoch[figure] for epoch in epochs[first + FROM - 1 :] or epochs[-1:]))


def _phases(settings: Settings, epochs: int) -> list[tuple[int, int]]:
    """Return (first, end) of the epochs between slowdowns, from 0."""
    starts = sorted({0, *(one.epoch - 1 for one in settings.slowdown if one.epoch <= epochs)})
    return list(zip(starts, [*starts[1:], epochs], strict=True))


def _reached(first: int, end: int, run: Run, every: Sequence[Run]) -> int | None:
    """Return in which of these epochs, from 1, a run is as good as the best one of all; or None."""
    best = min(epoch["pace"] for one in every for epoch in one["epochs"][first:end])
    for number, epoch in enumerate(run["epochs"][first:end], 1):
        if epoch["pace"] <= (1 + NEAR) * best:
            return number
    return None
