"""The figures of one training, computed from what its ranks recorded. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wagma.simulate import Workload, simulate
from wagma.simulate.network import FREE

from .algorithms import Compared
from .settings import Settings
from .stopping import summary

if TYPE_CHECKING:
    from wagma.inject import Delays

    from .train import Trained

Floats = npt.NDArray[np.float64]
Figures = dict[str, Any]

# A rank that waited less, in seconds, waited for no rank: its time in the call is communication.
NOBODY_S = 1e-3


def figures(
    settings: Settings, compared: Compared, seed: int, trained: Trained, delays: Delays
) -> Figures:
    """Return one entry of "runs", see training.schema.json."""
    records = trained.records
    wall = max(record["end_seconds"] for record in records)
    made = [len(record["versions"]) for record in records]
    steps = np.concatenate([record["step_seconds"] for record in records])
    late = np.concatenate([record["late"] for record in records])
    waited = [float(sum(record["waited_seconds"])) for record in records]
    part = settings.batch // settings.micro_batches
    samples = sum(record["micro_batches"] for record in records) * part
    stopped = compared.stop is not None
    compute = recorded_compute(settings, records, delays, dropped=stopped)
    ideal = None
    if compared.rule is not None:
        ideal = simulate(compared.rule, Workload(compute.T), FREE, consensus=False)
    ages: Counter[int] = sum((Counter(record["staleness"]) for record in records), Counter())
    seconds = np.array([record["snapshot_seconds"] for record in records]).max(axis=0)
    return {
        "algorithm": compared.name,
        "label": compared.label,
        "seed": seed,
        "throughput": samples / wall,
        # As measured: also what EagerSGD computed and still carries.
        "ideal_throughput": ideal
        and (samples / ideal.seconds if stopped else ideal.computed * settings.batch),
        "wall_seconds": wall,
        "ideal_seconds": ideal and ideal.seconds,
        "version_seconds": wall / settings.steps,
        "steps_per_rank": made,
        "step_time_p50": float(np.percentile(steps, 50)),
        "step_time_p90": float(np.percentile(steps, 90)),
        **_on_time(records),
        **_own_compute(settings, compared, records, delays),
        "waited_seconds": float(np.mean(waited)),
        "waited_seconds_per_rank": waited,
        "late_share": float(late.mean()),
        "staleness_mean": _mean(ages),
        "staleness_histogram": {str(age): ages[age] for age in sorted(ages)},
        "communication_seconds": _communication(records),
        "consensus_distance": float(np.mean(trained.consensus)) if trained.consensus else None,
        "consensus_distances": trained.consensus,
        "accuracy": trained.final_value,
        "time_to_target": _time_to(settings.target, seconds, trained.snapshot_values),
        "curve": {
            "versions": trained.snapshot_versions,
            "seconds": seconds.tolist(),
            "accuracy": trained.snapshot_values,
        },
        "behind_share": sum(record["behind"] for record in records)
        / sum(record["micro_batches"] for record in records),
        "dropping": summary([record["stats"] for record in records]),
    }


def recorded_compute(
    settings: Settings, records: list[dict[str, Any]], delays: Delays, *, dropped: bool = False
) -> Floats:
    """Return the seconds that each rank computed before it called each version: [versions, P].

    Versions that a rank left out would have taken its usual time, and the injected delay; where
    they were `dropped`, no time.
    """
    parts = delays.table(settings.steps * settings.micro_batches)
    injected = parts.reshape(settings.steps, settings.micro_batches, -1).sum(axis=1)
    table = np.full((settings.steps, len(records)), np.nan)
    for rank, record in enumerate(records):
        own = np.array(record["step_seconds"]) - np.array(record["called_seconds"])
        table[record["versions"], rank] = own
        usual = np.median(own - injected[record["versions"], rank])
        missing = np.isnan(table[:, rank])
        table[missing, rank] = 0.0 if dropped else usual + injected[missing, rank]
    return table


def _own_compute(
    settings: Settings, compared: Compared, records: list[dict[str, Any]], delays: Delays
) -> Figures:
    """Return mean and deviation of a step's computing without delays.

    None: it was cut short, or DDP waited for other ranks in it.
    """
    parts = settings.micro_batches
    if compared.by_ddp or any(
        each["micro_batches"] != len(each["versions"]) * parts for each in records
    ):
        return {"compute_seconds": None, "compute_deviation": None}
    injected = delays.table(settings.steps * parts).reshape(settings.steps, parts, -1).sum(axis=1)
    own = [
        np.array(each["step_seconds"]) - each["called_seconds"] - injected[each["versions"], rank]
        for rank, each in enumerate(records)
    ]
    every = np.concatenate(own)
    return {"compute_seconds": float(every.mean()), "compute_deviation": float(every.std())}


def _on_time(records: list[dict[str, Any]]) -> Figures:
    """Return percentiles of the steps at which a rank was not itself delayed; None: there is none.

    What such a step takes longer than without delays, other ranks have caused.
    """
    steps = np.concatenate([record["step_seconds"] for record in records])
    delayed = np.concatenate([record["delayed"] for record in records]).astype(bool)
    own = steps[~delayed]
    return {
        f"on_time_step_p{percent}": float(np.percentile(own, percent)) if own.size else None
        for percent in (50, 90)
    }


def _mean(ages: Counter[int]) -> float | None:
    count = sum(ages.values())
    return sum(age * number for age, number in ages.items()) / count if count else None


def _communication(records: list[dict[str, Any]]) -> float | None:
    """Return the median time of calls that hardly waited for a rank, without that wait."""
    called = np.concatenate([record["called_seconds"] for record in records])
    waited = np.concatenate([record["waited_seconds"] for record in records])
    alone = waited < NOBODY_S
    return float(np.median((called - waited)[alone])) if alone.any() else None


def _time_to(target: float, seconds: Floats, values: list[float]) -> float | None:
    """Return when the averaged model reached `target`, by the last rank to make the version."""
    reached = np.flatnonzero(np.array(values) >= target)
    return float(seconds[reached[0]]) if reached.size else None
