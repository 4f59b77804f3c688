"""From series to ratios and verdicts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..figures import delayed, figures, punctual
from ..samples import Series

__all__ = [
    "Compared",
    "Measured",
    "Summary",
    "against_better",
    "late_ranks",
    "late_share",
    "summary",
    "verdict",
]


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


def summary(series: Series) -> Summary:
    """In each iteration the longest time that a rank spent in its calls, from its own arrival.

    Ranks that were delayed on purpose do not count.
    """
    return _summary(lambda percent: punctual(series, percent), len(series.began))


def late_ranks(series: Series) -> Summary | None:
    """The same times of ranks that were delayed on purpose; None: nobody was."""
    if series.delayed is None or not series.delayed.any():
        return None
    return _summary(lambda percent: delayed(series, percent) or 0.0, int(series.delayed.sum()))


def _summary(us: Callable[[float], float], samples: int) -> Summary:
    p10, median, p90 = (1e-6 * us(percent) for percent in (10, 50, 90))
    return Summary(median, p10, p90, samples)


def late_share(series: Series) -> float:
    """Share of the contributions that came too late."""
    return figures(series).late_percent / 100


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
