"""Counters of this rank and of all ranks, and a summary that names the slow ranks."""

from dataclasses import dataclass

from wagma.units import plural, time_text

SLOW = 1.25  # times the compute of the median rank
SLOW_S = 50e-6  # and at least this much more, in seconds: the least grace
SHOWN = 8  # ranks in a summary


@dataclass(frozen=True, slots=True)
class RankStats:
    """Counters of one rank since the creation of its handle, as of a sync version.

    Attributes:
        rank: the rank that these counters describe.
        version: the sync version; for a departed rank, the version that it would have called next.
        departed: whether the rank has closed its handle; these are then its last counters.
        calls: versions that the rank had called, this one excluded.
        late: calls whose contribution came after their version was pinned.
        unmerged: late calls that found no result newer than the last merged one.
        used: results that the rank got and that hold a contribution of its own.
        staleness: versions by which these contributions trailed the newest, summed over `used`.
        staleness_max: the largest such distance.
        waited: seconds spent waiting for others.
        compute: seconds from call to call, waiting excluded, summed over `calls`. The rank's part
            of the reductions and its computing while a request is pending are included.
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
        """Return the share of late calls, 0 before the first call."""
        return self.late / self.calls if self.calls else 0.0

    @property
    def staleness_mean(self) -> float:
        """Return the mean number of versions that its contributions trailed, 0 without any."""
        return self.staleness / self.used if self.used else 0.0

    @property
    def compute_mean(self) -> float:
        """Return the seconds of compute per call, 0 before the first call."""
        return self.compute / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of this rank since the creation of its handle, and those gathered from all ranks.

    Attributes:
        calls: versions that this rank has called.
        late: calls whose contribution came after their version was pinned.
        unmerged: late calls that found no result newer than the last merged one.
        redone_slices: slices that this rank recomputed because their owner was stopped.
        buffer_waits: calls that waited for a buffer because `shm_limit` was reached.
        waited: seconds spent waiting for others.
        grace: seconds that a version is held open for recent members, the value in force.
        segment_bytes: shared memory that this rank has committed, in bytes; with transport="mpi"
            the memory of its contributions, results and receives (buffers from 64 KiB on use huge
            pages, so that a single buffer takes 2 MiB).
        wakeups: how often the progress thread of transport="mpi" has looked for messages.
        direct: calls with quorum="all" in which the ranks read private arrays from each other's
            memory (process_vm_readv) instead of passing them through the segment. The ranks choose
            the way that they measure to be faster. The count stays 0 where the system forbids such
            reads or `WAGMA_CMA=0` is set.
        private: how private arrays passed in the newest call with quorum="all" that had any, above
            some KiB: "read" (as above) or "chunks", through the segment; None before.
        device: name of the GPU that has the arrays of the calls; None: they are in host memory.
        memory: where contributions and results are: "host"; for arrays on a GPU "direct": on the
            GPUs, or "staged": in host memory, through which the engine copies.
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
    device: str | None
    memory: str
    ranks: tuple[RankStats, ...] = ()

    @property
    def late_share(self) -> float:
        """Return the share of late calls, 0 before the first call."""
        return self.late / self.calls if self.calls else 0.0

    @property
    def slow(self) -> tuple[int, ...]:
        """Return the ranks that compute more than 1.25 times as long as the median, slowest first.

        Only ranks present at the last sync version count, and only differences of 50 us per call.
        """
        median = self._median()
        slow = [
            entry
            for entry in self._present()
            if entry.compute_mean > SLOW * median and entry.compute_mean > median + SLOW_S
        ]
        return tuple(entry.rank for entry in sorted(slow, key=_by_compute))

    def summary(self) -> str:
        """Describe the slow ranks: a sentence, and a table of at most 8 ranks, the slowest first.

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
        """Return the ranks that have not departed; includes this rank if anything was gathered."""
        return [entry for entry in self.ranks if not entry.departed]

    def _median(self) -> float:
        """Return the compute per call of the median rank (the lower one of two), in seconds."""
        from statistics import median_low  # takes longer to import than this module

        return median_low([entry.compute_mean for entry in self._present()] or [0.0])


def _by_compute(entry: RankStats) -> tuple[float, int]:
    """Return the sort key: slowest first, equal ranks by number."""
    return -entry.compute_mean, entry.rank


def _times(value: float, median: float) -> str:
    return f"{value / median:.2f}x" if median else "-"
