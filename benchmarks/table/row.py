"""One line of the table, and how its numbers are written. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .ratios import Compared, Summary

__all__ = [
    "DEFAULT_LEVEL",
    "Report",
    "Row",
    "launch_name",
    "reached",
    "size_text",
    "spread",
    "time_text",
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


def size_text(size: int) -> str:
    """4 B, 16 KiB, 100 MiB."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:#.3g}".rstrip(".") + f" {name}"
    return f"{seconds * 1e9:.0f} ns"


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
