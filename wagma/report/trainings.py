"""Trainings as records: of the demo, and of the training benchmark. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wagma.demo.report import mean_model_curve, time_to_accuracy
from wagma.demo.settings import ALGORITHMS
from wagma.report.formats import FormatError, finite
from wagma.report.records import Curve, Run, Training

__all__ = ["read_demo", "read_training"]


def read_demo(path: str, content: Mapping[str, Any]) -> Training:
    """The content of a file of ``python -m wagma demo --json``.

    Raises:
        FormatError: it has no runs.
        KeyError, TypeError, ValueError: it is something else.
    """
    settings = content["settings"]
    runs = [_demo_run(run, settings) for run in content["runs"]]
    if not runs:
        raise FormatError("it has no runs")
    ranks = len(runs[0].waited_s)
    return Training(
        path=path,
        what=f"demo: digits on {ranks} ranks, {content['imbalance']}",
        target=finite(settings["target"]),
        labels=ALGORITHMS,
        measure="test accuracy",
        in_percent=True,
        interrupted=False,
        runs=runs,
    )


def _demo_run(run: Mapping[str, Any], settings: Mapping[str, Any]) -> Run:
    ranks = run["ranks"]
    steps = np.array([[finite(each) for each in rank["step_seconds"]] for rank in ranks])
    p50, p90 = np.percentile(steps, [50, 90])
    seconds, accuracies = mean_model_curve(dict(run))
    whole = max(finite(rank["end_seconds"]) for rank in ranks)
    return Run(
        algorithm=str(run["algorithm"]),
        seed=int(settings["seed"]),
        throughput=steps.size * finite(settings["batch"]) / whole,
        ideal_throughput=None,
        step_p50_s=float(p50),
        step_p90_s=float(p90),
        waited_s=[sum(finite(each) for each in rank["waited_seconds"]) for rank in ranks],
        late_share=float(np.mean([[bool(each) for each in rank["late"]] for rank in ranks])),
        staleness={},
        staleness_mean=None,
        consensus_distance=None,
        curve=Curve(seconds.tolist(), accuracies.tolist()) if accuracies.size else None,
        accuracy=finite(run["final_accuracy"]),
        time_to_target_s=time_to_accuracy(dict(run), finite(settings["target"])),
    )


# ---- the training benchmark ----------------------------------------------------------------------


def read_training(path: str, content: Mapping[str, Any]) -> Training:
    """The content of a file of ``python -m wagma bench training --json``.

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
    curve = run["curve"]
    seconds = [finite(each) for each in curve["seconds"]]
    accuracies = [finite(each) for each in curve["accuracy"]]
    if len(seconds) != len(accuracies):
        raise ValueError("a curve has not as many seconds as values")
    return Run(
        algorithm=str(run["algorithm"]),
        seed=int(run["seed"]),
        throughput=finite(run["throughput"]),
        ideal_throughput=finite(run["ideal_throughput"]),
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
    )


def _optional(value: Any) -> float | None:
    return None if value is None else finite(value)
