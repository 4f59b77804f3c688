"""From samples to ratios and verdicts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Compared",
    "Measured",
    "Summary",
    "Times",
    "against_better",
    "late_share",
    "slowest",
    "summarise",
    "verdict",
]

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Summary:
    """Distribution of times in seconds."""

    median: float
    p10: float
    p90: float
    samples: int


@dataclass(frozen=True)
class Measured:
    """One launch: wagma, and the forms of MPI_Allreduce that ran beside it."""

    launch: str
    wagma: Summary
    mpi: Mapping[str, Summary]
    late_share: float = 0.0


@dataclass(frozen=True)
class Compared:
    """How many times faster than MPI_Allreduce wagma was, in the launch whose MPI was fastest."""

    ratio: float
    launch: str
    form: str
    wagma: Summary
    mpi: Summary
    late_share: float


def slowest(series: Mapping[str, Any], left_out: Any = None) -> Times:
    """For each iteration the longest time of a rank from its own arrival, in ns.

    Args:
        series: has `began_ns` and `ended_ns`, [iterations][ranks].
        left_out: ranks that do not count, [iterations][ranks]; None: all count.
    """
    own = np.array(series["ended_ns"], np.int64) - np.array(series["began_ns"], np.int64)
    if left_out is not None:
        own[np.array(left_out, np.bool_)] = 0
    longest: Times = own.max(axis=1)
    return longest


def late_share(series: Mapping[str, Any]) -> float:
    """Share of the contributions that came too late, of the counted iterations."""
    return float(np.mean(series["late"]))


def summarise(samples_ns: Iterable[float] | Times) -> Summary:
    """Median and spread of times in ns; ValueError if there are none."""
    times = np.array(list(samples_ns), np.float64) * 1e-9
    if times.size == 0:
        raise ValueError("no samples")
    p10, median, p90 = (float(t) for t in np.percentile(times, (10, 50, 90)))
    return Summary(median, p10, p90, times.size)


def against_better(launches: Iterable[Measured]) -> Compared:
    """The comparison with the fastest MPI_Allreduce: of all launches and forms, by the median.

    wagma's time is that of the same launch. ValueError if there is nothing to compare.
    """
    found = [
        Compared(
            mpi.median / launch.wagma.median,
            launch.launch,
            form,
            launch.wagma,
            mpi,
            launch.late_share,
        )
        for launch in launches
        for form, mpi in launch.mpi.items()
    ]
    return min(found, key=lambda compared: compared.mpi.median)


def verdict(ratio: float, goal: float | None, late_share: float, late_max: float) -> str:
    """One of "reached", "missed", "too many late" (it does not count), and "" without a goal."""
    if late_share > late_max:
        return "too many late"
    if goal is None:
        return ""
    return "reached" if ratio >= goal else "missed"
