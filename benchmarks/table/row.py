"""One line of the table, and the numbers that it is made of. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from wagma.units import time_text

from ..figures import delayed, figures, punctual
from ..samples import Series

Report = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """Distribution of times in seconds."""

    median: float
    p10: float
    p90: float
    samples: int


@dataclass(frozen=True)
class Compared:
    """How many times as fast as MPI_Allreduce wagma was, in the launch whose MPI was fastest."""

    ratio: float
    launch: str
    form: str
    wagma: Summary
    mpi: Summary
    late_share: float


@dataclass(frozen=True)
class Row:
    """One line of the table; `compared` has the numbers of a ratio."""

    group: str
    what: str
    ranks: int
    goal: str
    measured: str
    verdict: str
    details: str
    compared: Compared | None = None


def summary(series: Series) -> Summary:
    """Summarise the longest time of a rank in its calls, from its own arrival, per iteration.

    Ranks that were delayed on purpose do not count.
    """
    return _summary(lambda percent: punctual(series, percent), len(series.began))


def late_ranks(series: Series) -> Summary | None:
    """Summarise the times of ranks that were delayed on purpose; None: no rank was."""
    if series.delayed is None or not series.delayed.any():
        return None
    return _summary(lambda percent: delayed(series, percent) or 0.0, int(series.delayed.sum()))


def _summary(us: Callable[[float], float], samples: int) -> Summary:
    p10, median, p90 = (1e-6 * us(percent) for percent in (10, 50, 90))
    return Summary(median, p10, p90, samples)


def late_share(series: Series) -> float:
    """Return the share of the contributions that came too late."""
    return figures(series).late_percent / 100


def spread(s: Summary | None) -> str:
    """Return the median and, in brackets, the 10% and 90% quantiles; "none" without times."""
    if s is None:
        return "none"
    return f"{time_text(s.median)} [{time_text(s.p10)}, {time_text(s.p90)}]"


def reached(yes: bool) -> str:
    """Return a verdict."""
    return "reached" if yes else "missed"


# ---- launches ------------------------------------------------------------------------------------


def mpi_name(launch: dict[str, Any]) -> str:
    """Return the name of the launch's MPI."""
    return {"mpich": "MPICH", "openmpi": "Open MPI"}[launch["mpi"]]


def launch_name(launch: dict[str, Any]) -> str:
    """Return the MPI and its thread level."""
    return f"{mpi_name(launch)} (THREAD_{launch['by_rank'][0]['thread_level'].upper()})"


def is_usual(launch: dict[str, Any]) -> bool:
    """Return whether MPI has the thread level that mpi4py asks for."""
    return bool(launch["by_rank"][0]["thread_level"] == "multiple")


def measured(report: Report, scenario: str) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield each launch that ran a scenario, and what its ranks measured in it."""
    for launch in report["launches"]:
        if found := [rank[scenario] for rank in launch["by_rank"] if scenario in rank]:
            yield launch, found
