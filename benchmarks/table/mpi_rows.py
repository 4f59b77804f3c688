"""The rows of transport="mpi", from the raw samples of a report. Pure.

Each MPI is compared with its own MPI_Allreduce, and has rows of its own: what wagma adds to its
messages is to be seen, and not which MPI has the faster ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wagma.units import plural, size_text, time_text

from ..figures import BASELINES, OF_GROUPS
from .plan import ALONE, GOALS, mpi_sizes
from .ratio_rows import points
from .ratios import Compared, Measured, against_better, late_share, summary, verdict
from .row import (
    DEFAULT_LEVEL,
    MPI_NAMES,
    Report,
    Row,
    launch_name,
    reached,
    spread,
)
from .scenario_rows import beside_sleeper

__all__ = ["allreduce", "groups", "idle", "straggler"]

PROGRESS_S = 1e-3  # an idle progress thread sleeps so long: wagma_options.progress_sleep
CPU_GOAL = 0.04  # of a core
WHAT = {"mpi": 'quorum="all"', "mpi-groups": 'quorum="all", groups of 2'}


def _launches(report: Report, ranks: int) -> Iterator[dict[str, Any]]:
    for launch in report["launches"]:
        if launch["ranks"] == ranks and launch_name(launch).endswith(DEFAULT_LEVEL):
            yield launch


# ---- beside MPI_Allreduce ------------------------------------------------------------------------


def allreduce(report: Report) -> Iterator[Row]:
    """Sums of all ranks."""
    return _ratios(report, "mpi")


def groups(report: Report) -> Iterator[Row]:
    """Sums of groups, beside those of all ranks."""
    return _ratios(report, "mpi-groups")


def _ratios(report: Report, group: str) -> Iterator[Row]:
    for ranks in sorted({*report["ranks"], *report["mpi_ranks"]}):
        for launch in _launches(report, ranks):
            for size in mpi_sizes(report["over_mpi"], ranks):
                if found := _compared(launch, ALONE[group], size, "mpi"):
                    yield _ratio(group, launch, ranks, size, found)


def _compared(launch: dict[str, Any], series: str, size: int, baseline: str) -> Compared | None:
    """With the fastest form of the launch's MPI; None: it was not measured."""
    for point in points(launch, size, "python"):
        mpi = {name: summary(one) for name, one in point.items() if BASELINES[baseline](one)}
        if series in point and mpi:
            own = point[series]
            late = late_share(own)
            return against_better([Measured(launch_name(launch), summary(own), mpi, late)])
    return None


def _ratio(group: str, launch: dict[str, Any], ranks: int, size: int, found: Compared) -> Row:
    goal = GOALS.get((ALONE[group], size))
    details = f"{spread(found.wagma)}; {found.form} {spread(found.mpi)}"
    if beside := _compared(launch, ALONE[group], size, OF_GROUPS):
        details += f"; {beside.form} {spread(beside.mpi)}"
    return Row(
        group,
        f'transport="mpi", {WHAT[group]}, {MPI_NAMES[launch["mpi"]]}, {size_text(size)}',
        ranks,
        "" if goal is None else f">= {goal:.2g}x",
        f"{found.ratio:.2f}x",
        verdict(found.ratio, goal, found.late_share, 0.0),
        details,
        found,
    )


# ---- while another rank sleeps, and between calls ------------------------------------------------


def straggler(report: Report) -> Iterator[Row]:
    """Time in calls while another rank sleeps, beside the same calls while nobody does."""
    s = report["training"]
    for ranks in report["ranks"]:
        for launch in _launches(report, ranks):
            found = [one["mpi-straggler"] for one in launch["by_rank"] if "mpi-straggler" in one]
            others = [rank for rank in found if not rank["sleeper"]]
            if not others:
                continue
            times, grace, behind = beside_sleeper(others)
            present = np.concatenate([rank["present"]["samples_ns"] for rank in found]) * 1e-9
            for percent in (50, 99):
                blocked = float(np.percentile(times, percent))
                nobody_late = float(np.percentile(present, percent))
                goal = nobody_late + grace + PROGRESS_S
                yield Row(
                    "mpi-straggler",
                    f'transport="mpi", a rank sleeps {s["sleep"] * 1e3:g} ms, '
                    f"{MPI_NAMES[launch['mpi']]}: p{percent} of the others' calls",
                    ranks,
                    f"<= {time_text(goal)}",
                    time_text(blocked),
                    reached(blocked <= goal),
                    f"{times.size} calls; nobody late {time_text(nobody_late)}, grace "
                    f"{time_text(grace)} (median), progress {PROGRESS_S * 1e3:g} ms; sleeper at "
                    f"most {behind} of {s['window']} versions behind",
                )


def idle(report: Report) -> Iterator[Row]:
    """What the progress thread takes of a core while there is nothing to do."""
    for ranks in report["ranks"]:
        for launch in _launches(report, ranks):
            found = [one["mpi-idle"] for one in launch["by_rank"] if "mpi-idle" in one]
            if not found:
                continue
            most = max(found, key=lambda one: float(one["cpu_ns"] / one["seconds"]))
            share = most["cpu_ns"] * 1e-9 / most["seconds"]
            yield Row(
                "mpi-idle",
                f'transport="mpi", between calls, {MPI_NAMES[launch["mpi"]]}: of a core',
                ranks,
                f"<= {CPU_GOAL:.0%}",
                f"{share:.2%}",
                reached(share <= CPU_GOAL),
                f"{plural(most['threads'], 'thread')}, {most['wakeups'] / most['seconds']:.0f} "
                "wake-ups per second; the rank that has most",
            )
