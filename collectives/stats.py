"""Counters of a collective: one rank's own, and those of all ranks, which say who is slow."""

from __future__ import annotations

from dataclasses import dataclass

from wagma.units import plural, time_text

__all__ = ["RankStats", "Stats"]

SLOW = 1.25  # times the compute of the median rank
SLOW_S = 50e-6  # and so much more of it, in seconds: the least grace; below, nobody waits long
SHOWN = 8  # ranks in a summary


@dataclass(frozen=True, slots=True)
class RankStats:
    """Counters of one rank since its handle was created, as it arrived at a sync version.

    Attributes:
        rank: whose they are.
        version: the sync version; of a departed rank the version that it would have called next.
        departed: the rank has closed its handle: these are its last counters.
        calls: versions that the rank had called, this one excluded.
        late: calls whose contribution came after their version was pinned.
        unmerged: late calls that found nothing newer than what had been merged before.
        used: results that the rank got and that hold a contribution of its own.
        staleness: how many versions these contributions were behind the newest, summed over `used`.
        staleness_max: the same of the stalest one.
        waited: seconds spent waiting for others.
        compute: seconds from call to call, waiting excluded, summed over `calls`. The rank's part
            of the reductions counts, and what it computes while a request is pending.
        compute_median: seconds, the median of the last 32.
        behind: seconds by which the rank arrived at sync versions after the first one, summed.
    """

    rank: int
    version: int
    departed: bool
    calls: int
    late: int
    unmerged: int
    used: int
    staleness: int
    staleness_max: int
    waited: float
    compute: float
    compute_median: float
    behind: float

    @property
    def late_share(self) -> float:
        """Share of the calls that were late, 0 before the first call."""
        return self.late / self.calls if self.calls else 0.0

    @property
    def staleness_mean(self) -> float:
        """How many versions its contributions were behind the newest on average, 0 without any."""
        return self.staleness / self.used if self.used else 0.0

    @property
    def compute_mean(self) -> float:
        """Seconds of compute per call, 0 before the first call."""
        return self.compute / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of this rank since the handle was created, and what is known of the others.

    Attributes:
        calls: versions that this rank has called.
        late: calls whose contribution came after their version was pinned.
        unmerged: late calls that found nothing newer than what had been merged before.
        redone_slices: slices that this rank recomputed because their owner was stopped.
        buffer_waits: calls that waited for a buffer because `shm_limit` was reached.
        waited: seconds spent waiting for others.
        grace: seconds that a version is held open for recent members, the value in force.
        segment_bytes: shared memory that this rank has committed, in bytes; with transport="mpi"
            the memory of its contributions, results and receives (those from 64 KiB on share
            huge pages, so that one of them takes 2 MiB).
        wakeups: how often the progress thread of transport="mpi" has looked for messages.
        direct: calls with quorum="all" in which the ranks read private arrays from each other's
            memory (process_vm_readv), instead of passing them through the segment. They do what
            they measure to be faster; where the system does not permit it, or `WAGMA_CMA=0` is
            set, never.
        private: how private arrays passed in the newest call with quorum="all" in which there were
            any, above some KiB: "read" (as above) or "chunks", through the segment; None before.
        ranks: counters of every rank, gathered at the last sync version that this rank took, and
            equal on all that took it; empty before the first one. Sync versions are those of
            `sync_period`, `sync(x)` and `close(sync=True)`.
    """

    calls: int
    late: int
    unmerged: int
    redone_slices: int
    buffer_waits: int
    waited: float
    grace: float
    segment_bytes: int
    wakeups: int
    direct: int
    private: str | None
    ranks: tuple[RankStats, ...] = ()

    @property
    def late_share(self) -> float:
        """Share of the calls that were late, 0 before the first call."""
        return self.late / self.calls if self.calls else 0.0

    @property
    def slow(self) -> tuple[int, ...]:
        """The ranks whose compute is more than 1.25 times that of the median rank, slowest first.

        Of those present at the last sync version. Differences below 50 us per call do not count.
        """
        median = self._median()
        slow = [
            entry
            for entry in self._present()
            if entry.compute_mean > SLOW * median and entry.compute_mean > median + SLOW_S
        ]
        return tuple(entry.rank for entry in sorted(slow, key=_by_compute))

    def summary(self) -> str:
        """Who is slow: a sentence, and a table of the ranks (at most 8, the slowest first).

        The columns are calls, late share, mean staleness, compute per call and relative to the
        median rank, seconds waited for others and seconds behind the first at sync versions.
        """
        if not self.ranks:
            return "Nothing is known of the other ranks before the first sync version."
        present = self._present()
        median = self._median()
        by_rank = {entry.rank: entry for entry in self.ranks}
        slow = [f"rank {r} ({_times(by_rank[r].compute_mean, median)})" for r in self.slow]
        verdict = "No rank is slow."
        if slow:
            more = f" and {len(slow) - SHOWN} more" if len(slow) > SHOWN else ""
            verdict = f"Slow: {', '.join(slow[:SHOWN])}{more}."
        version = max(entry.version for entry in present)
        lines = [
            f"{plural(len(present), 'rank')} at sync version {version}, "
            f"the median one computes {time_text(median)} per call. {verdict}",
            f"{'rank':>5} {'calls':>9} {'late':>7} {'stale':>7} {'compute':>9} {'rel.':>7} "
            f"{'waited':>9} {'behind':>9}",
        ]
        shown = sorted(self.ranks, key=lambda entry: (entry.departed, *_by_compute(entry)))[:SHOWN]
        lines += [
            f"{entry.rank:>5} {entry.calls:>9} {entry.late_share:>7.1%} "
            f"{entry.staleness_mean:>7.2f} {time_text(entry.compute_mean):>9} "
            f"{_times(entry.compute_mean, median):>7} "
            f"{time_text(entry.waited):>9} {time_text(entry.behind):>9}"
            + (" departed" if entry.departed else "")
            for entry in shown
        ]
        if len(self.ranks) > SHOWN:
            lines.append(
                f"and {plural(len(self.ranks) - SHOWN, 'rank')} with less compute, or departed"
            )
        return "\n".join(lines)

    def _present(self) -> list[RankStats]:
        """Not departed; this rank always is one, if anything was gathered."""
        return [entry for entry in self.ranks if not entry.departed]

    def _median(self) -> float:
        """Compute per call of the median rank (the lower one of two), in seconds."""
        from statistics import median_low  # which takes longer to import than this module

        return median_low([entry.compute_mean for entry in self._present()] or [0.0])


def _by_compute(entry: RankStats) -> tuple[float, int]:
    """The slowest first, equal ones by rank."""
    return -entry.compute_mean, entry.rank


def _times(value: float, median: float) -> str:
    return f"{value / median:.2f}x" if median else "-"
