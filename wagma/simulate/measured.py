"""Compare simulations with trainings that `wagma bench training --json` measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from wagma.launch import tables
from wagma.simulate.engine import simulate
from wagma.simulate.methods import Method, method
from wagma.simulate.network import Network
from wagma.simulate.workload import Workload
from wagma.units import NONE, number_text, percent_text

_BYTES = 4  # of a parameter
_SEED = 0  # of the benchmark's handles
_COMPUTE = ("compute_seconds", "compute_deviation")


@dataclass(frozen=True)
class Compared:
    """One training, and its simulation.

    Attributes:
        ranks, imbalance, method: of both.
        figure: what is compared: "samples/s", or "versions/s" where gradients are thrown away.
        measured, predicted: the figure.
        late: share of late calls, measured, and `late_predicted`; None: servers count none.
    """

    ranks: int
    imbalance: str
    method: str
    figure: str
    measured: float
    predicted: float
    late: float | None
    late_predicted: float | None

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1


def compare(
    document: dict[str, Any], network: Network, methods: Collection[str] | None = None
) -> list[Compared]:
    """Simulate the runs of a document, with the compute times that were measured.

    Args:
        document: of training.schema.json.
        network: of the ranks.
        methods: names of the methods to compare; None: all.

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
        if methods is not None and run["algorithm"] not in methods:
            continue
        chosen = _method(run["algorithm"], settings)
        times = run if run.get("compute_seconds") else usual
        workload = _workload(settings, ranks, run["seed"], *(times[name] for name in _COMPUTE))
        predicted = simulate(chosen, workload, network, _SEED, consensus=False)
        served = chosen.kind == "server"
        wasteful = served or chosen.late in ("skip", "keep")
        # Measured are the samples that were computed; of carried ones, `throughput` has only those
        # that an average got.
        rate = predicted.computed if chosen.kind == "ordered" else predicted.throughput
        found.append(
            Compared(
                ranks,
                settings["imbalance"],
                run["algorithm"],
                "versions/s" if wasteful else "samples/s",
                1 / run["version_seconds"] if wasteful else run["throughput"],
                predicted.versions_per_second if wasteful else rate * settings["batch"],
                None if served else run["late_share"],
                None if served else predicted.late,
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
    """Return a table of the comparisons, what would have been chosen, and the errors."""
    head = ["method", "ranks", "imbalance", "of", "measured", "predicted", "error", "late", "pred."]
    lines = [
        [
            *(each.method, str(each.ranks), each.imbalance, each.figure),
            *(number_text(each.measured, 4), number_text(each.predicted, 4)),
            *(f"{each.error:+.1%}", _late(each.late), _late(each.late_predicted)),
        ]
        for each in every
    ]
    chosen = "".join(
        f"{ranks} ranks, {imbalance}: {best.method} has the highest prediction, and measured "
        f"{percent_text(share)} of the best throughput\n"
        for (ranks, imbalance), (best, share) in _chosen(every).items()
    )
    return f"{tables.aligned([head, *lines])}\n{chosen}{_errors(every)}"


def markdown(every: list[Compared]) -> str:
    """Return errors and late shares, a row for each method and a column for each training."""
    columns = list(dict.fromkeys((each.ranks, each.imbalance) for each in every))
    cells = {(each.method, each.ranks, each.imbalance): _cell(each) for each in every}
    errors = {
        column: [abs(each.error) for each in every if (each.ranks, each.imbalance) == column]
        for column in columns
    }
    best = _chosen(every)
    rows = [
        ["method", *(f"P={ranks}, `{imbalance}`" for ranks, imbalance in columns)],
        *(
            [name, *(cells.get((name, *column), NONE) for column in columns)]
            for name in dict.fromkeys(each.method for each in every)
        ),
        ["median of the absolute errors", *(f"{median(errors[column]):.1%}" for column in columns)],
        [
            "highest prediction; its measured share of the best",
            *(f"{best[column][0].method}; {best[column][1]:.1%}" for column in columns),
        ],
    ]
    return f"{tables.markdown(rows)}\n{_errors(every)}"


def _cell(each: Compared) -> str:
    late = "" if not each.late else f"; {_late(each.late)}, {_late(each.late_predicted)}"
    return f"{each.error:+.1%}{late}"


def _late(share: float | None) -> str:
    return NONE if share is None else f"{share:.0%}"


def _chosen(every: list[Compared]) -> dict[tuple[int, str], tuple[Compared, float]]:
    """Return the method with the highest predicted samples/s, and its share of the best measured.

    By number of ranks and imbalance.
    """
    found = {}
    for key in dict.fromkeys((each.ranks, each.imbalance) for each in every):
        those = [e for e in every if (e.ranks, e.imbalance) == key and e.figure == "samples/s"]
        if those:
            best = max(those, key=lambda each: each.predicted)
            found[key] = best, best.measured / max(each.measured for each in those)
    return found


def _errors(every: list[Compared]) -> str:
    errors = [abs(each.error) for each in every]
    return (
        f"error: median {median(errors):.1%}, mean {fmean(errors):.1%}, largest {max(errors):.1%} "
        f"of {len(errors)}\n"
    )
