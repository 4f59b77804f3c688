"""The rows of what calls, threads and memory cost, from the raw samples of a report. Pure."""

from collections.abc import Iterator

import numpy as np

from wagma.units import plural, size_text, time_text

from .plan import COST_SIZES, GRACE, LOOPS
from .ratio_rows import LOOP_NAMES, points
from .row import (
    Report,
    Row,
    Summary,
    is_usual,
    late_share,
    launch_name,
    measured,
    mpi_name,
    reached,
    spread,
    summary,
)

BINDING_GOAL = 0.8e-6  # seconds that a call from Python may take longer than from C
WHAT = {"wagma all": 'quorum="all"', "wagma 1": f"quorum=1, grace={GRACE:g}"}
CPU_GOAL = 1e-3  # share of a core between calls; reading the clock and going to sleep take some
THREAD_CPU_GOAL = 0.04  # the same of the thread of a handle over MPI
MEMORY_GOAL = 1.01  # times the formula, which leaves out the words of the protocol
MEMORY_WORDS = 64 << 10


def cost(report: Report) -> Iterator[Row]:
    """Compare calls from Python with calls from C."""
    for launch in filter(is_usual, report["launches"]):
        for size in COST_SIZES:
            for name, what in WHAT.items():
                found = {
                    loop: point[name]
                    for loop in LOOPS
                    for point in points(launch, size, loop)
                    if name in point
                }
                if len(found) < len(LOOPS):
                    continue
                times = {loop: summary(series) for loop, series in found.items()}
                added = times["python"].median - times["c"].median
                details = [
                    f"{LOOP_NAMES[loop]} {spread(times[loop])}, late {late_share(series):.1%}"
                    for loop, series in found.items()
                ]
                yield Row(
                    "cost",
                    f"what Python adds to a call, {what}, {size_text(size)}",
                    launch["ranks"],
                    f"<= {time_text(BINDING_GOAL)}",
                    ("-" if added < 0 else "") + time_text(abs(added)),
                    reached(added <= BINDING_GOAL),
                    f"{'; '.join(details)}; beside {launch_name(launch)}",
                )


def passive(report: Report) -> Iterator[Row]:
    """Tell the threads and the CPU time of a rank between its calls."""
    if not (found := report["alone"].get("passive")):
        return
    idle = found["by_rank"][0]
    share = idle["cpu_ns"] * 1e-9 / found["seconds"]
    yield Row(
        "passive",
        "between calls, while others call",
        len(found["by_rank"]),
        f"no thread, CPU < {CPU_GOAL:.1%}",
        f"{idle['threads']} threads, {share:.4%}",
        reached(idle["threads"] == 0 and share < CPU_GOAL),
        f"{time_text(idle['cpu_ns'] * 1e-9)} of CPU in {found['seconds']:g} s, "
        f"{found['calls_of_others']} versions of the others",
    )


def idle(report: Report) -> Iterator[Row]:
    """Tell what the progress thread takes of a core while there is nothing to do."""
    for launch, found in measured(report, "mpi-idle"):
        most = max(found, key=lambda one: float(one["cpu_ns"] / one["seconds"]))
        share = most["cpu_ns"] * 1e-9 / most["seconds"]
        yield Row(
            "mpi-idle",
            f'transport="mpi", between calls, {mpi_name(launch)}: of a core',
            launch["ranks"],
            f"<= {THREAD_CPU_GOAL:.0%}",
            f"{share:.2%}",
            reached(share <= THREAD_CPU_GOAL),
            f"{plural(most['threads'], 'thread')}, {most['wakeups'] / most['seconds']:.0f} "
            "wake-ups per second; the rank that has most",
        )


def memory(report: Report) -> Iterator[Row]:
    """Tell what the segment takes."""
    for name, found in report["alone"].get("memory", {}).items():
        most = {
            key: max(rank[key] for rank in found["by_rank"])
            for key in found["by_rank"][0]
            if key.endswith("_bytes")
        }
        size, formula = found["bytes"], found["formula"]
        taken = most["allocated_bytes"] / found["ranks"]
        yield Row(
            "memory",
            f"shared memory per rank, {name}, {size_text(size)}",
            found["ranks"],
            f"{formula / size:g} arrays",
            f"{taken / size:.3f} arrays",
            reached(taken <= formula * MEMORY_GOAL + MEMORY_WORDS),
            f"the engine counts {most['segment_bytes']} bytes; a process maps "
            f"{most['resident_bytes'] / size:.2f} arrays, with what it read of the others'",
        )


def binding(report: Report) -> Iterator[Row]:
    """Tell what a call takes with a single rank."""
    if found := report["alone"].get("binding"):
        samples = np.array(found["by_rank"][0]["samples_ns"])
        p10, median, p90 = (1e-9 * np.percentile(samples, (10, 50, 90))).tolist()
        times = Summary(median, p10, p90, samples.size)
        yield Row("binding", "a call, 4 B", 1, "", time_text(median), "", spread(times))
