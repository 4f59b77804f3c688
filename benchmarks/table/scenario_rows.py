"""The rows of ranks that compute between their calls, from the raw samples of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median
from typing import Any

import numpy as np

from wagma.theory.order_statistics import exponential_mean
from wagma.theory.replay import replay
from wagma.units import time_text

from ..scenarios.plan import Fastest, draws
from .row import Report, Row, launch_name, reached

__all__ = ["beside_sleeper", "grace", "k_of_p", "straggler"]

LATE_GOAL = 0.15  # with grace="auto"
P50_GOAL, P99_GOAL = 1e-3, 10e-3  # seconds in a call, beside grace, while another rank sleeps
THEORY_GOAL = 0.1  # how far from theory


def grace(report: Report) -> Iterator[Row]:
    """Late share where it should be small."""
    s = report["training"]
    for launch in report["launches"]:
        by_rank = [rank["grace"] for rank in launch["by_rank"] if "grace" in rank]
        if not by_rank:
            continue
        late = np.array([rank["late"] for rank in by_rank])
        graces = np.array([rank["grace"] for rank in by_rank])
        yield Row(
            "grace",
            f'grace="auto", steps of {s["grace_step"] * 1e3:g} ms +- {s["grace_jitter"]:.0%}',
            launch["ranks"],
            f"< {LATE_GOAL:.0%} late",
            f"{late.mean():.1%} late",
            reached(late.mean() < LATE_GOAL),
            f"{late.shape[1]} versions; grace {time_text(float(np.median(graces)))} (median)",
        )


def beside_sleeper(ranks: list[dict[str, Any]]) -> tuple[Any, float, int]:
    """Of those that do not sleep: s of each call, median grace, how far the sleeper was behind."""
    handles = [handle for rank in ranks for handle in rank["handles"]]
    times = np.concatenate([handle["samples_ns"] for handle in handles]) * 1e-9
    grace = float(np.median(np.concatenate([handle["grace"] for handle in handles])))
    return times, grace, max(max(handle["behind"]) for handle in handles)


def straggler(report: Report) -> Iterator[Row]:
    """Time in calls while another rank sleeps."""
    s = report["training"]
    for launch in report["launches"]:
        by_rank = [rank["straggler"] for rank in launch["by_rank"] if "straggler" in rank]
        others = [rank for rank in by_rank if not rank["sleeper"]]
        if not others:
            continue
        times, open_for, behind = beside_sleeper(others)
        mpi = [rank["mpi"]["samples_ns"] for rank in others if "mpi" in rank]
        for percent, goal in ((50, P50_GOAL), (99, P99_GOAL)):
            blocked = float(np.percentile(times, percent))
            details = (
                f"{times.size} calls, grace {time_text(open_for)} (median), sleeper at most "
                f"{behind} of {s['window']} versions behind"
            )
            if mpi:
                mpi_times = np.array(mpi) * 1e-9
                theirs = float(np.percentile(mpi_times, percent))
                asleep = float(np.median(mpi_times[:, :: s["period"]]))
                details += (
                    f"; {launch_name(launch)} {time_text(theirs)}, and {time_text(asleep)} in the "
                    "versions in which the rank sleeps"
                )
            yield Row(
                "straggler",
                f"a rank sleeps {s['sleep'] * 1e3:g} ms: p{percent} of the others' calls",
                launch["ranks"],
                f"<= {goal * 1e3:g} ms + grace",
                time_text(blocked),
                reached(blocked <= goal + open_for),
                details,
            )


# ---- the fastest K -------------------------------------------------------------------------------


def k_of_p(report: Report) -> Iterator[Row]:
    """Time per version beside theory, and what a slow rank costs."""
    s = Fastest(**report["k-of-p"])
    for launch in report["launches"]:
        by_rank = [rank["k-of-p"] for rank in launch["by_rank"] if "k-of-p" in rank]
        if not by_rank:
            continue
        ranks = launch["ranks"]
        found: dict[tuple[int, bool], tuple[float, float]] = {}
        for runs in zip(*by_rank, strict=True):
            quorum, slow = runs[0]["quorum"], runs[0]["slow"]
            began = min(run["started_ns"] for run in runs)
            measured = (min(run["ended_ns"][-1] for run in runs) - began) * 1e-9 / s.versions
            reduction = 1e-9 * median(time for run in runs for time in run["present_ns"])
            overslept = fmean(run["overslept"] for run in runs)
            theory = replay(draws(s, ranks, slow) + overslept, quorum, reduction)
            late = fmean(late for run in runs for late in run["late"])
            found[quorum, slow] = measured, theory.seconds
            yield Row(
                "k-of-p",
                f"K={quorum} of {ranks}, {_who(s, slow)}: time per version",
                ranks,
                f"{time_text(theory.seconds)} +- {THEORY_GOAL:.0%}",
                time_text(measured),
                reached(abs(measured / theory.seconds - 1) <= THEORY_GOAL),
                f"theory {time_text(theory.seconds)} ({measured / theory.seconds - 1:+.1%}); "
                f"{s.versions} versions, reduction {time_text(reduction)}, late {late:.1%} "
                f"(theory {theory.late_share:.1%})"
                + ("" if slow else f"; {_cancelling(s, ranks, quorum)}")
                + f"; each sleep {time_text(overslept)} too long, in theory as well",
            )
        quorum = ranks - 1
        (equal, equal_theory), (slow, slow_theory) = found[quorum, False], found[quorum, True]
        waiting = replay(draws(s, ranks, slow=True), ranks, 0.0).seconds
        yield Row(
            "k-of-p",
            f"K={quorum} of {ranks}: a rank {s.slowdown:g} times as slow, over equal ranks",
            ranks,
            f"<= {slow_theory / equal_theory:.2f}x + {THEORY_GOAL:.0%}",
            f"{slow / equal:.2f}x",
            reached(slow / equal <= slow_theory / equal_theory * (1 + THEORY_GOAL)),
            f"{time_text(slow)} instead of {time_text(equal)} per version; a rank that waits for "
            f"all {ranks} needs {time_text(waiting)} or more",
        )


def _who(s: Fastest, slow: bool) -> str:
    who = f"exponential, {s.mean * 1e3:g} ms"
    return f"{who}, one rank {s.slowdown:g} times as slow" if slow else who


def _cancelling(s: Fastest, ranks: int, quorum: int) -> str:
    cancelled = exponential_mean(s.mean, quorum, ranks)
    return f"{time_text(cancelled)} on average if the late stopped computing"
