"""The rows of ranks that compute between their calls, from the raw samples of a report. Pure."""

from collections.abc import Iterator
from statistics import fmean, median
from typing import Any

import numpy as np

from wagma.theory.order_statistics import exponential_mean
from wagma.theory.replay import replay
from wagma.units import size_text, time_text

from ..figures import nonblocking
from ..raw import from_json
from ..samples import Series
from ..scenarios.plan import Fastest, draws
from .row import Report, Row, late_ranks, launch_name, measured, mpi_name, reached, spread, summary

LATE_GOAL = 0.15  # with grace="auto"
BLOCKED_GOALS = {50: 1e-3, 99: 10e-3}  # percentile: seconds in a call, beside grace
PROGRESS_S = 1e-3  # an idle progress thread sleeps so long: wagma_options.progress_sleep
HIDDEN_GOAL = 1.5  # times a reduction with everybody present
THEORY_GOAL = 0.1  # how far from theory


def grace(report: Report) -> Iterator[Row]:
    """Tell the share of late contributions where it should be small."""
    s = report["training"]
    for launch, by_rank in measured(report, "grace"):
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


# ---- a rank sleeps -------------------------------------------------------------------------------


def straggler(report: Report) -> Iterator[Row]:
    """Tell the time in calls while another rank sleeps, beside MPI_Allreduce."""
    s = report["training"]
    for launch, by_rank in measured(report, "straggler"):
        others = [rank for rank in by_rank if not rank["sleeper"]]
        times, grace, behind = _beside_sleeper(others)
        mpi = _seconds(rank["mpi"] for rank in others if "mpi" in rank)
        for percent, goal in BLOCKED_GOALS.items():
            blocked = float(np.percentile(times, percent))
            details = (
                f"{times.size} calls, grace {time_text(grace)} (median), sleeper at most "
                f"{behind} of {s['window']} versions behind"
            )
            if mpi.size:
                theirs = float(np.percentile(mpi, percent))
                asleep = float(np.median(mpi[:, :: s["period"]]))
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
                reached(blocked <= goal + grace),
                details,
            )


def straggler_over_mpi(report: Report) -> Iterator[Row]:
    """Tell the same over messages, beside the same calls while no rank sleeps."""
    s = report["training"]
    for launch, by_rank in measured(report, "mpi-straggler"):
        times, grace, behind = _beside_sleeper([rank for rank in by_rank if not rank["sleeper"]])
        present = _seconds(rank["present"] for rank in by_rank)
        for percent in BLOCKED_GOALS:
            blocked, alone = (float(np.percentile(each, percent)) for each in (times, present))
            goal = alone + grace + PROGRESS_S
            yield Row(
                "mpi-straggler",
                f'transport="mpi", a rank sleeps {s["sleep"] * 1e3:g} ms, {mpi_name(launch)}: '
                f"p{percent} of the others' calls",
                launch["ranks"],
                f"<= {time_text(goal)}",
                time_text(blocked),
                reached(blocked <= goal),
                f"{times.size} calls; nobody late {time_text(alone)}, grace {time_text(grace)} "
                f"(median), progress {PROGRESS_S * 1e3:g} ms; sleeper at most {behind} of "
                f"{s['window']} versions behind",
            )


def _beside_sleeper(ranks: list[dict[str, Any]]) -> tuple[Any, float, int]:
    """Return the seconds of the ranks' calls, the median grace, and the sleeper's largest lag."""
    handles = [handle for rank in ranks for handle in rank["handles"]]
    grace = float(np.median([handle["grace"] for handle in handles]))
    return _seconds(handles), grace, max(max(handle["behind"]) for handle in handles)


def _seconds(calls: Any) -> Any:
    """Return the times of calls, [ranks or handles, versions]."""
    return np.array([one["samples_ns"] for one in calls]) * 1e-9


# ---- posted calls --------------------------------------------------------------------------------


def _posted(report: Report, kind: str) -> Iterator[tuple[int, list[tuple[str, dict[str, Series]]]]]:
    """Yield each number of ranks, and its launches that posted calls, with their series."""
    for ranks in report["ranks"]:
        found = [
            (launch_name(launch), from_json(point))
            for launch in report["launches"]
            if launch["ranks"] == ranks and (point := launch["posted"].get(kind))
        ]
        if found:
            yield ranks, found


def iallreduce(report: Report) -> Iterator[Row]:
    """Tell how much of a reduction computing hides, beside the MPI_Iallreduce that hides most."""
    settings = report["posted"]["iallreduce"]
    for ranks, launches in _posted(report, "iallreduce"):
        found = [
            (nonblocking(one).overlap_percent, one, beside, series)
            for beside, series in launches
            for one in series.values()
            if one.library == "mpi"
        ]
        if not found:
            continue
        theirs, mpi, beside, series = max(found, key=lambda one: one[0])
        wagma = next(one for one in series.values() if one.library == "wagma")
        yield Row(
            "iallreduce",
            f'quorum="all", posted, computing as long as a reduction takes, '
            f"{settings['tests']} tests: overlap, {size_text(settings['sizes'][0])}",
            ranks,
            "",
            f"{nonblocking(wagma).overlap_percent:.0f}%",
            "",
            f"{_parts(wagma)}; {beside} {mpi.name} {theirs:.0f}%: {_parts(mpi)}",
        )


def _parts(series: Series) -> str:
    found = nonblocking(series)
    parts = {"overall": found.overall, "compute": found.compute, "pure": found.pure.mean}
    return ", ".join(f"{name} {time_text(us * 1e-6)}" for name, us in parts.items())


def overlap(report: Report) -> Iterator[Row]:
    """Tell the time in posting and waiting; beside the fastest MPI_Iallreduce."""
    s = report["posted"]["overlap"]
    for ranks, launches in _posted(report, "overlap"):
        found = []
        for beside, series in launches:
            times = {name: summary(one) for name, one in series.items()}
            forms = [name for name, one in series.items() if one.library == "mpi"]
            form = min(forms, key=lambda name: times[name].median, default=None)
            found.append((times[form].median if form else np.inf, beside, form, times, series))
        _, beside, form, times, series = min(found, key=lambda one: one[0])
        posted, present = times["wagma posted"], times["wagma present"]
        ratio = posted.median / present.median
        details = (
            f"{spread(posted)}, the late rank {spread(late_ranks(series['wagma posted']))}; all "
            f"present {spread(present)}; blocking after the computing "
            f"{spread(times['wagma blocking'])}"
        )
        if form:
            late = spread(late_ranks(series[form]))
            details += f"; {beside} {form} {spread(times[form])}, the late rank {late}"
        yield Row(
            "overlap",
            f'quorum="all", posted, {s["compute"] * 1e3:g} ms before the wait, a rank posts '
            f"{s['lateness'] * 1e3:g} ms late: the others' time, over a reduction's, "
            f"{size_text(s['sizes'][0])}",
            ranks,
            f"<= {HIDDEN_GOAL:g}x a reduction",
            f"{ratio:.2f}x",
            reached(ratio <= HIDDEN_GOAL),
            details,
        )


# ---- the fastest K -------------------------------------------------------------------------------


def k_of_p(report: Report) -> Iterator[Row]:
    """Compare the time per version with theory, and tell what a slow rank costs."""
    s = Fastest(**report["k-of-p"])
    equally = f"exponential, {s.mean * 1e3:g} ms"
    for launch, by_rank in measured(report, "k-of-p"):
        ranks = launch["ranks"]
        found: dict[tuple[int, bool], tuple[float, float]] = {}
        for runs in zip(*by_rank, strict=True):
            quorum, slow = runs[0]["quorum"], runs[0]["slow"]
            began = min(run["started_ns"] for run in runs)
            took = (min(run["ended_ns"][-1] for run in runs) - began) * 1e-9 / s.versions
            reduction = 1e-9 * median(time for run in runs for time in run["present_ns"])
            overslept = fmean(run["overslept"] for run in runs)
            theory = replay(draws(s, ranks, slow) + overslept, quorum, reduction)
            late = fmean(late for run in runs for late in run["late"])
            cancelled = time_text(exponential_mean(s.mean, quorum, ranks))
            found[quorum, slow] = took, theory.seconds
            speeds = f"{equally}, one rank {s.slowdown:g} times as slow" if slow else equally
            yield Row(
                "k-of-p",
                f"K={quorum} of {ranks}, {speeds}: time per version",
                ranks,
                f"{time_text(theory.seconds)} +- {THEORY_GOAL:.0%}",
                time_text(took),
                reached(abs(took / theory.seconds - 1) <= THEORY_GOAL),
                f"theory {time_text(theory.seconds)} ({took / theory.seconds - 1:+.1%}); "
                f"{s.versions} versions, reduction {time_text(reduction)}, late {late:.1%} "
                f"(theory {theory.late_share:.1%})"
                + ("" if slow else f"; {cancelled} on average if the late stopped computing")
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
