"""The rows that need no MPI, from the raw samples of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wagma.units import size_text, time_text

from ..samples import Series
from .ratios import summary
from .row import Report, Row, reached, spread

__all__ = ["binding", "memory", "passive"]

CPU_GOAL = 1e-3  # share of a core between calls; reading the clock and going to sleep take some
MEMORY_GOAL = 1.01  # times the formula, which leaves out the words of the protocol
MEMORY_WORDS = 64 << 10


def passive(report: Report) -> Iterator[Row]:
    """Threads and CPU time of a rank between its calls."""
    passive = report["alone"].get("passive")
    if passive is None:
        return
    idle = passive["by_rank"][0]
    share = idle["cpu_ns"] * 1e-9 / passive["seconds"]
    yield Row(
        "passive",
        "between calls, while others call",
        len(passive["by_rank"]),
        f"no thread, CPU < {CPU_GOAL:.1%}",
        f"{idle['threads']} threads, {share:.4%}",
        reached(idle["threads"] == 0 and share < CPU_GOAL),
        f"{time_text(idle['cpu_ns'] * 1e-9)} of CPU in {passive['seconds']:g} s, "
        f"{passive['calls_of_others']} versions of the others",
    )


def memory(report: Report) -> Iterator[Row]:
    """What the segment takes."""
    for name, memory in report["alone"].get("memory", {}).items():
        by_rank, formula = memory["by_rank"], memory["formula"]
        measured = max(rank["allocated_bytes"] for rank in by_rank) / memory["ranks"]
        counted = max(rank["segment_bytes"] for rank in by_rank)
        resident = max(rank["resident_bytes"] for rank in by_rank)
        size = memory["bytes"]
        yield Row(
            "memory",
            f"shared memory per rank, {name}, {size_text(size)}",
            memory["ranks"],
            f"{formula / size:g} arrays",
            f"{measured / size:.3f} arrays",
            reached(measured <= formula * MEMORY_GOAL + MEMORY_WORDS),
            f"the engine counts {counted} bytes; a process maps {resident / size:.2f} arrays, "
            "with what it read of the others'",
        )


def binding(report: Report) -> Iterator[Row]:
    """A call with a single rank."""
    if binding := report["alone"].get("binding"):
        took = np.array(binding["by_rank"][0]["samples_ns"], np.int64)[:, None]
        began = np.zeros_like(took)
        times = summary(Series("wagma", "wagma", "python", began, took, began > 0))
        yield Row("binding", "a call, 4 B", 1, "", time_text(times.median), "", spread(times))
