"""Compare simulations with trainings that `wagma bench training --json` measured. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from wagma.launch import tables
from wagma.simulate.engine import simulate
from wagma.simulate.methods import Method, method
from wagma.simulate.network import Network
from wagma.simulate.workload import Workload
from wagma.units import number_text, percent_text

_BYTES = 4  # of a parameter
_COMPUTE = ("compute_seconds", "compute_deviation")


@dataclass(frozen=True)
class Compared:
    """One training, and its simulation.

    Attributes:
        ranks, imbalance, method: of both.
        figure: what is compared: "samples/s", or "versions/s" where gradients are thrown away.
        measured, predicted: the figure.
        late: share of late calls, measured, and `late_predicted`.
    """

    ranks: int
    imbalance: str
    method: str
    figure: str
    measured: float
    predicted: float
    late: float
    late_predicted: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1


def compare(document: dict[str, Any], network: Network) -> list[Compared]:
    """Simulate the runs of a document, with the compute times that were measured.

    Args:
        document: of training.schema.json.
        network: of the ranks.

    Raises:
        ValueError: computing was not emulated, so that its times are not known.
    """
    settings, ranks = document["settings"], document["environment"]["ranks"]
    if settings["compute"] is None:
        raise ValueError("the trainings did not emulate computing: measure them with --compute")
    known = [run for run in document["runs"] if run.get("compute_seconds")]
    usual = {
        "compute_seconds": settings["compute"],
        "compute_deviation": 0.0,
        **{name: median(run[name] for run in known) for name in _COMPUTE if known},
    }
    found = []
    for run in document["runs"]:
        chosen = _method(run["algorithm"], settings)
        times = run if run.get("compute_seconds") else usual
        workload = _workload(settings, ranks, run["seed"], *(times[name] for name in _COMPUTE))
        predicted = simulate(chosen, workload, network, run["seed"], consensus=False)
        wasteful = chosen.kind == "server" or chosen.late == "skip"
        found.append(
            Compared(
                ranks,
                settings["imbalance"],
                run["algorithm"],
                "versions/s" if wasteful else "samples/s",
                1 / run["version_seconds"] if wasteful else run["throughput"],
                predicted.versions_per_second
                if wasteful
                else predicted.throughput * settings["batch"],
                run["late_share"],
                predicted.late,
            )
        )
    return found


def _workload(
    settings: dict[str, Any], ranks: int, seed: int, seconds: float, deviation: float
) -> Workload:
    """Return steps of this mean time, with normal jitter and the benchmark's delays."""
    parts: int = settings["micro_batches"]
    delayed = Workload.injected(
        settings["imbalance"], seconds, ranks, settings["steps"], seed, parts
    )
    assert delayed.micro_batches is not None
    shape = delayed.micro_batches.shape
    jitter = np.random.default_rng(seed).normal(0.0, deviation / math.sqrt(parts), shape)
    each = np.maximum(delayed.micro_batches + jitter, 0.0)
    return Workload(each.sum(axis=2), each, _BYTES * (settings["parameters"] or 0))


def _method(name: str, settings: dict[str, Any]) -> Method:
    """Return a method with the settings of the benchmark."""
    options: dict[str, Any] = {}
    if name in ("wagma", "wagma-ff", "wagma-fixed", "wagma-world", "wagma-small"):
        options["sync_period"] = settings["sync_period"]
    if settings["group_size"] and name in ("wagma", "wagma-ff", "wagma-fixed", "wagma-nosync"):
        options["group_size"] = settings["group_size"]
    if name.startswith(("dropcompute", "anytime")) and settings["threshold"]:
        options["threshold"] = settings["threshold"]
    return method(name, **options)


def text(every: list[Compared]) -> str:
    """Return a table of the comparisons, and their median error."""
    head = ["method", "ranks", "imbalance", "of", "measured", "predicted", "error", "late", "pred."]
    lines = [
        [
            *(each.method, str(each.ranks), each.imbalance, each.figure),
            *(number_text(each.measured, 4), number_text(each.predicted, 4)),
            *(f"{each.error:+.1%}", percent_text(each.late), percent_text(each.late_predicted)),
        ]
        for each in every
    ]
    errors = [abs(each.error) for each in every]
    return tables.aligned([head, *lines]) + (
        f"\nerror: median {median(errors):.1%}, mean {fmean(errors):.1%}, largest "
        f"{max(errors):.1%} of {len(errors)}\n"
    )
