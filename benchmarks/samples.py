"""What was measured: raw samples of all ranks, as rank 0 has them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .settings import Settings

__all__ = ["Checks", "Point", "Report", "Series"]

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Checks:
    """Results that were compared with what they should hold, over all ranks.

    Attributes:
        results: number of results looked at; 0: nobody asked.
        wrong: those that differ.
        first_wrong: says which, and how; None if none is.
    """

    results: int = 0
    wrong: int = 0
    first_wrong: str | None = None


@dataclass(frozen=True)
class Series:
    """Repeated calls of one kind.

    Attributes:
        name: "wagma in-place", "MPI_Allreduce in-place", "gloo", ...
        library: "wagma", "mpi", "gloo" or "nccl".
        loop: "c" or "python": where the loop around the calls runs.
        began: ns of a clock that all ranks share, [iterations, ranks]: the arrivals.
        ended: the same, when the call returned.
        late: the rank's contribution was not in the result, [iterations, ranks].
        checks: of all counted and uncounted calls.
        posting: ns in posting, [iterations, ranks], of non-blocking calls; else None.
        waiting: ns in testing and waiting, likewise.
        computing: ns computed between them, likewise.
        pure: ns of posting and waiting with nothing between them, of the kind "iallreduce",
            [iterations, ranks]: OSU's "Pure Comm."; else None.
        delayed: the rank posted late on purpose, of the kind "overlap", [iterations, ranks];
            else None.
        testing: ns of `waiting` in tests while computing, [iterations, ranks]; None: not told.
    """

    name: str
    library: str
    loop: str
    began: Times
    ended: Times
    late: Flags
    checks: Checks = Checks()
    posting: Times | None = None
    waiting: Times | None = None
    computing: Times | None = None
    pure: Times | None = None
    delayed: Flags | None = None
    testing: Times | None = None


@dataclass(frozen=True)
class Point:
    """Series that were measured beside each other; wagma's comes first.

    Attributes:
        size: bytes of each array.
        count: its elements.
        arrival: the pattern, as text.
        amplitude: seconds, of the pattern; None where it has none.
        series: at least one.
    """

    size: int
    count: int
    arrival: str
    amplitude: float | None
    series: tuple[Series, ...]


@dataclass
class Report:
    """A whole run.

    Attributes:
        settings: what was asked.
        environment: where and with what: JSON values.
        ranks: number of ranks.
        points: in the order in which they were measured.
        interrupted: it was ended before its end.
    """

    settings: Settings
    environment: dict[str, Any]
    ranks: int
    points: list[Point] = field(default_factory=list)
    interrupted: bool = False
