"""Trainings as records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wagma.report.formats import FormatError, finite
from wagma.report.records import Curve, Run, Training

__all__ = ["read_training"]


def read_training(path: str, content: Mapping[str, Any]) -> Training:
    """The content of a file of ``python -m wagma bench training --json`` or ``demo --json``.

    Raises:
        FormatError: it has no runs.
        AttributeError, KeyError, TypeError, ValueError: it is something else.
    """
    settings, measures = content["settings"], content["measures"]
    runs = [_run(run) for run in content["runs"]]
    if not runs:
        raise FormatError("it has no runs")
    compute = settings["compute"]
    emulated = "" if compute is None else f", {1e3 * finite(compute):g} ms per step (emulated)"
    return Training(
        path=path,
        what=(
            f"{settings['task']} on {content['environment']['ranks']} ranks, "
            f"{content['imbalance']}{emulated}"
        ),
        target=finite(settings["target"]),
        labels={str(run["algorithm"]): str(run["label"]) for run in content["runs"]},
        measure=str(measures["name"]),
        in_percent=bool(measures["in_percent"]),
        interrupted=bool(content["interrupted"]),
        runs=runs,
    )


def _run(run: Mapping[str, Any]) -> Run:
    curve, dropping = run["curve"], run.get("dropping") or {}
    seconds = [finite(each) for each in curve["seconds"]]
    accuracies = [finite(each) for each in curve["accuracy"]]
    if len(seconds) != len(accuracies):
        raise ValueError("a curve has not as many seconds as values")
    return Run(
        algorithm=str(run["algorithm"]),
        seed=int(run["seed"]),
        throughput=finite(run["throughput"]),
        ideal_throughput=_optional(run["ideal_throughput"]),
        step_p50_s=finite(run["step_time_p50"]),
        step_p90_s=finite(run["step_time_p90"]),
        waited_s=[finite(each) for each in run["waited_seconds_per_rank"]],
        late_share=finite(run["late_share"]),
        staleness={int(age): finite(n) for age, n in run["staleness_histogram"].items()},
        staleness_mean=_optional(run["staleness_mean"]),
        consensus_distance=_optional(run["consensus_distance"]),
        curve=Curve(seconds, accuracies) if seconds else None,
        accuracy=finite(run["accuracy"]),
        time_to_target_s=_optional(run["time_to_target"]),
        drop_rate=_optional(dropping.get("drop_rate")),
        threshold_s=_optional(dropping.get("threshold")),
        speedup=_optional(dropping.get("measured_speedup")),
        expected_speedup=_optional(dropping.get("expected_speedup")),
    )


def _optional(value: Any) -> float | None:
    return None if value is None else finite(value)
