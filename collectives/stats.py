"""Counters of one rank's handle."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Stats"]


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of this rank since the handle was created.

    Attributes:
        calls: versions that this rank has called.
        late: calls whose contribution came after their version was pinned.
        unmerged: late calls that found nothing newer than what had been merged before.
        redone_slices: slices that this rank recomputed because their owner was stopped.
        buffer_waits: calls that waited for a buffer because `shm_limit` was reached.
        waited: seconds spent waiting for others.
        grace: seconds that a version is held open for recent members, the value in force.
        segment_bytes: shared memory that this rank has committed, in bytes.
    """

    calls: int
    late: int
    unmerged: int
    redone_slices: int
    buffer_waits: int
    waited: float
    grace: float
    segment_bytes: int

    @property
    def late_share(self) -> float:
        """Share of the calls that were late, 0 before the first call."""
        return self.late / self.calls if self.calls else 0.0
