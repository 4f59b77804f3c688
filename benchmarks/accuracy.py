"""How accurate the common start and the common clock were, and when that is too little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .figures import headline
from .samples import Point

if TYPE_CHECKING:
    from mpi4py import MPI

    from .start import Start

LARGE = 0.1  # share of the shortest latency that a clock may be wrong by
MANY = 0.05  # share of the calls that may have missed the start

Facts = dict[str, Any]


def accuracy(comm: MPI.Intracomm, start: Start, *, ended: bool = False) -> Facts:
    """Return the accuracy for the environment, as JSON values equal on all ranks; collective.

    Args:
        comm: all ranks.
        start: of them.
        ended: everything is measured: how far the clocks have moved apart meanwhile, and how many
            starts had gone by when a rank knew of them, are told as well.
    """
    own = (start.error_ns, abs(start.drift()) if ended else 0, start.missed)
    errors, drifts, missed = zip(*comm.allgather(own), strict=True)
    found: Facts = {"shared": start.shared, "error_us": max(errors) / 1e3}
    if ended:
        found |= {"drift_us": max(drifts) / 1e3, "missed_starts": sum(missed)}
    return found


def warnings(clock: Facts, points: Sequence[Point]) -> list[str]:
    """Return the warnings that follow from `accuracy` at the end. Pure."""
    series = [one for point in points for one in point.series]
    if not series:
        return []
    shortest, calls = min(map(headline, series)), sum(one.began.size for one in series)
    found = []
    wrong_by = clock["error_us"] + clock["drift_us"]
    if wrong_by > LARGE * shortest:
        found.append(
            f"clocks of the hosts may differ by {wrong_by:.3g} us, the shortest latency is "
            f"{shortest:.3g} us: arrivals and latencies from the last arrival are no better than "
            "that; own latencies are not affected; measure larger arrays, or for a shorter time"
        )
    if clock["missed_starts"] > MANY * calls:
        found.append(
            f"{clock['missed_starts']} starts had gone by when a rank knew of them, of {calls} "
            "calls: ranks arrive later than the pattern says; leave cores to the system, or use "
            "fewer ranks"
        )
    return found
