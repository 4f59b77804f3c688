"""What was measured: raw samples of all ranks, as rank 0 has them. Pure."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .settings import Settings

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Checks:
    """Results that were compared with what they should hold, over all ranks."""

    results: int = 0  # number of results looked at; 0: nobody asked
    wrong: int = 0  # those that differ
    first_wrong: str | None = None  # says which, and how; None if none is


@dataclass(frozen=True)
class Series:
    """Repeated calls of one kind."""

    name: str  # "wagma in-place", "MPI_Allreduce in-place", "gloo", ...
    library: str  # "wagma", "mpi", "gloo", "nccl" or "copy"
    loop: str  # "c" or "python": where the loop around the calls runs
    began: Times  # ns of a clock that all ranks share, [iterations, ranks]: the arrivals
    ended: Times  # the same, when the call returned
    late: Flags  # the rank's contribution was not in the result, [iterations, ranks]
    checks: Checks = Checks()  # of all counted and uncounted calls
    # ns in posting, [iterations, ranks], of non-blocking calls; else None
    posting: Times | None = None
    waiting: Times | None = None  # ns in testing and waiting, likewise
    computing: Times | None = None  # ns computed between them, likewise
    # ns of posting and waiting with nothing between them, of the kind "iallreduce", [iterations,
    # ranks]: OSU's "Pure Comm."; else None
    pure: Times | None = None
    # the rank posted late on purpose, of the kind "overlap", [iterations, ranks]; else None
    delayed: Flags | None = None
    # ns of `waiting` in tests while computing, [iterations, ranks]; None: not told
    testing: Times | None = None


@dataclass(frozen=True)
class Point:
    """Series that were measured beside each other; wagma's comes first."""

    size: int  # bytes of each array
    count: int  # its elements
    arrival: str  # the pattern, as text
    amplitude: float | None  # seconds, of the pattern; None where it has none
    series: tuple[Series, ...]  # at least one


@dataclass
class Report:
    """A whole run."""

    settings: Settings  # what was asked
    environment: dict[str, Any]  # where and with what: JSON values
    ranks: int  # number of ranks
    points: list[Point] = field(default_factory=list)  # in the order in which they were measured
    interrupted: bool = False  # it was ended before its end
