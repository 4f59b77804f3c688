"""Reports that were not measured, for the tests of figures and views."""

from typing import Any

import numpy as np

from wagma.benchmarks.samples import Checks, Point, Report, Series
from wagma.benchmarks.settings import Settings
from wagma.benchmarks.views import view

# [iterations, ranks], in ns.
OWN = [[1000, 3000], [2000, 4000], [3000, 5000], [4000, 6000]]
SLOWER = [[5000, 9000], [5000, 9000], [5000, 9000], [5000, 9000]]
SLOWEST = [[7000, 9500], [7000, 9500], [7000, 9500], [7000, 9500]]
UNCHECKED = Checks()
ENVIRONMENT = {"cores": 2, "hosts": ["a", "b"], "versions": {"numpy": "2.4"}, "warnings": []}
GOOD, BAD = Checks(8, 0), Checks(8, 3, "rank 1, result 2")
MPI = ("MPI_Allreduce in-place", SLOWEST)
FASTER_MPI = ("MPI_Allreduce two-buffers", SLOWER)
POSTED = {
    "posting": 500,
    "computing": 1000,
    "waiting": 700,
    "testing": 200,
    "pure": [[1600, 2000]] * 4,
}


def series(
    name: str = "wagma in-place",
    own: Any = OWN,
    *,
    began: Any = 0,
    late: Any = False,
    checks: Checks = UNCHECKED,
    library: str | None = None,
    **more: Any,
) -> Series:
    """A series of these latencies, in ns."""
    latencies = np.asarray(own, np.int64)
    arrivals = np.broadcast_to(np.asarray(began, np.int64), latencies.shape)
    return Series(
        name=name,
        library=library or {"w": "wagma", "M": "mpi", "g": "gloo", "n": "nccl"}[name[0]],
        loop="c",
        began=arrivals,
        ended=arrivals + latencies,
        late=np.broadcast_to(np.asarray(late, np.bool_), latencies.shape),
        checks=checks,
        **{
            name: np.broadcast_to(np.asarray(value), latencies.shape)
            for name, value in more.items()
        },
    )


def point(
    *found: Series, size: int = 8, arrival: str = "together", amplitude: float | None = None
) -> Point:
    """Return a point of these series, or of one of wagma's."""
    return Point(size, size // 4, arrival, amplitude, found or (series(),))


def report(settings: Settings, *points: Point, interrupted: bool = False) -> Report:
    """Return a report of two ranks."""
    return Report(settings, {"cores": 2}, 2, list(points), interrupted)


def text(settings: Settings, *points: Point, interrupted: bool = False) -> str:
    """All that is printed."""
    shown = view(settings)
    rows = "".join(shown.row(one) for one in points)
    whole = report(settings, *points, interrupted=interrupted)
    return shown.header(ENVIRONMENT) + rows + shown.footer(whole)


def compared(checks: Checks = GOOD) -> Point:
    """Wagma's series and two of MPI's."""
    return point(
        series(checks=checks), series(*MPI, checks=checks), series(*FASTER_MPI, checks=checks)
    )
