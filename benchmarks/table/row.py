"""One line of the table, and how its numbers are written. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wagma.units import time_text

from .ratios import Compared, Summary

__all__ = [
    "DEFAULT_LEVEL",
    "Report",
    "Row",
    "launch_name",
    "reached",
    "spread",
]

DEFAULT_LEVEL = "(THREAD_MULTIPLE)"  # mpi4py's
MPI_NAMES = {"mpich": "MPICH", "openmpi": "Open MPI"}

Report = dict[str, Any]


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


def spread(s: Summary | None) -> str:
    """Median and, in brackets, the 10% and 90% quantiles; "none" where there are no times."""
    if s is None:
        return "none"
    return f"{time_text(s.median)} [{time_text(s.p10)}, {time_text(s.p90)}]"


def launch_name(launch: dict[str, Any]) -> str:
    """The MPI and its thread level."""
    level = launch["by_rank"][0]["thread_level"]
    return f"{MPI_NAMES[launch['mpi']]} (THREAD_{level.upper()})"


def reached(yes: bool) -> str:
    """A verdict."""
    return "reached" if yes else "missed"
